/* Finds librdkafka's functions, and the module's table of its own. */

#include "message.h"
#include "text.h"
#include <dlfcn.h>

library_t library;
static void *opened;
static PyObject *kinds; /* the types whose instances have a client of librdkafka inside */

/* Look one function up; -1 with an exception if the library does not have it. */
static int find(void *handle, const char *name, void **into) {
    *into = dlsym(handle, name);
    if (*into == NULL) {
        PyErr_Format(PyExc_ImportError, "%s is not in this librdkafka", name);
        return -1;
    }
    return 0;
}

PyObject *bind_library(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *file;
    PyObject *types;
    void *handle = NULL;
    library_t found;
    if (!PyArg_ParseTuple(args, "sO!:bind", &file, &PyTuple_Type, &types))
        return NULL;
    if (opened != NULL)
        Py_RETURN_NONE;
    handle = dlopen(file, RTLD_NOW | RTLD_NOLOAD); /* confluent-kafka has loaded it, or it is another one */
    if (handle == NULL)
        return PyErr_Format(PyExc_ImportError, "%s is not loaded", file);
    const struct {
        const char *name;
        void **into;
    } wanted[] = {
        {"rd_kafka_name", (void **)&found.name},
        {"rd_kafka_topic_name", (void **)&found.topic_name},
        {"rd_kafka_topic_new", (void **)&found.topic_new},
        {"rd_kafka_topic_destroy", (void **)&found.topic_destroy},
        {"rd_kafka_producev", (void **)&found.producev},
        {"rd_kafka_last_error", (void **)&found.last_error},
        {"rd_kafka_headers_new", (void **)&found.headers_new},
        {"rd_kafka_headers_destroy", (void **)&found.headers_destroy},
        {"rd_kafka_header_add", (void **)&found.header_add},
        {"rd_kafka_message_headers", (void **)&found.message_headers},
        {"rd_kafka_header_get_all", (void **)&found.header_get_all},
        {"rd_kafka_message_timestamp", (void **)&found.message_timestamp},
        {"rd_kafka_message_errstr", (void **)&found.message_errstr},
        {"rd_kafka_queue_new", (void **)&found.queue_new},
        {"rd_kafka_queue_destroy", (void **)&found.queue_destroy},
        {"rd_kafka_queue_get_partition", (void **)&found.queue_get_partition},
        {"rd_kafka_queue_forward", (void **)&found.queue_forward},
        {"rd_kafka_consume_callback_queue", (void **)&found.consume_callback},
        {"rd_kafka_yield", (void **)&found.yield},
        {"rd_kafka_conf_interceptor_add_on_new", (void **)&found.add_on_new},
        {"rd_kafka_interceptor_add_on_destroy", (void **)&found.add_on_destroy},
        {"rd_kafka_interceptor_add_on_acknowledgement", (void **)&found.add_on_acknowledgement},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (find(handle, wanted[i].name, wanted[i].into) < 0) {
            dlclose(handle);
            return NULL;
        }
    }
    library = found;
    kinds = Py_NewRef(types);
    opened = handle;
    Py_RETURN_NONE;
}

/* Producer and Consumer begin with Python's own part, and behind it stands the client of librdkafka. */
typedef struct {
    PyObject_HEAD
    client_t *client;
} handle_t;

client_t *client_of(PyObject *handle) {
    client_t *client;
    int fits;
    if (opened == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "bind() comes first");
        return NULL;
    }
    if ((fits = PyObject_IsInstance(handle, kinds)) <= 0) {
        if (fits == 0)
            PyErr_Format(PyExc_TypeError, "%R is no client of confluent-kafka", handle);
        return NULL;
    }
    client = ((handle_t *)handle)->client;
    if (client == NULL)
        PyErr_SetString(PyExc_RuntimeError, "the client is closed");
    return client;
}

PyObject *name_of(PyObject *Py_UNUSED(module), PyObject *handle) {
    client_t *client = client_of(handle);
    return client == NULL ? NULL : PyUnicode_FromString(library.name(client));
}

static PyMethodDef functions[] = {
    {"bind", bind_library, METH_VARARGS, "Use the librdkafka of this file, which is loaded, inside clients of these types."},
    {"name_of", name_of, METH_O, "The name of the client inside a Producer or a Consumer."},
    {"produce", produce, METH_VARARGS, "Enqueue records by column; gives how many, and why no more: 0, or a code."},
    {"tally_of", tally_of, METH_O, "The Acknowledged of a Producer; None: it was made without this module as its plugin."},
    {"fetcher_of", fetcher_of, METH_VARARGS, "A Fetcher of a Consumer, which makes errors of this type."},
    {"columns_of", columns_of, METH_O, "Keys, values, headers and timestamps of messages; None: one of them is unusual."},
    {"each", each, METH_VARARGS, "Decode, call and encode values up to an unusual one; see `task.calling.tight`."},
    {"message", message, METH_VARARGS, "A Message of topic, partition, offset, key, value, headers, and timestamp (ms)."},
    {"carried", carried, METH_O, "What a list of Messages carries, by column; None: one of them is something else."},
    {"read_json", read_json, METH_VARARGS, "Read JSON into buffers of columns; also the indices of what is not usual."},
    {"write_json", write_json, METH_VARARGS, "Write buffers of columns as JSON; None: Python has to."},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module) {
    return add_tally(module) < 0 || add_message(module) < 0 || add_fetcher(module) < 0 ||
                   PyModule_AddIntConstant(module, "QUEUE_FULL", QUEUE_FULL) < 0 ||
                   PyModule_AddIntConstant(module, "UNUSUAL", 1) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_cues_kafka", .m_methods = functions, .m_slots = slots};

PyMODINIT_FUNC PyInit__cues_kafka(void) { return PyModuleDef_Init(&definition); }
