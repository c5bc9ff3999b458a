/* A fetched message in Python, with the methods of confluent-kafka's Message that the project calls.
 *
 * It holds copies, so nothing of librdkafka outlives `Fetcher.take`. It cannot be part of a cycle that Python's collector
 * would have to find, and is not tracked by it. */

#include "message.h"

PyObject *message_type;

static void message_dealloc(PyObject *self) {
    message_t *one = (message_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(one->topic);
    Py_XDECREF(one->key);
    Py_XDECREF(one->value);
    Py_XDECREF(one->headers);
    Py_XDECREF(one->error);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_topic(PyObject *self, PyObject *Py_UNUSED(none)) { return Py_NewRef(((message_t *)self)->topic); }
static PyObject *get_key(PyObject *self, PyObject *Py_UNUSED(none)) { return Py_NewRef(((message_t *)self)->key); }
static PyObject *get_value(PyObject *self, PyObject *Py_UNUSED(none)) { return Py_NewRef(((message_t *)self)->value); }

static PyObject *get_partition(PyObject *self, PyObject *Py_UNUSED(none)) {
    return PyLong_FromLong(((message_t *)self)->partition);
}

static PyObject *get_offset(PyObject *self, PyObject *Py_UNUSED(none)) {
    return PyLong_FromLongLong(((message_t *)self)->offset);
}

static PyObject *get_headers(PyObject *self, PyObject *Py_UNUSED(none)) {
    message_t *one = (message_t *)self;
    if (one->headers == NULL) { /* as the Python client says it */
        PyErr_SetString(PyExc_SystemError, "the name of a header is not UTF-8");
        return NULL;
    }
    return Py_NewRef(one->headers);
}

static PyObject *set_headers(PyObject *self, PyObject *given) {
    message_t *one = (message_t *)self;
    PyObject *before = one->headers;
    one->headers = Py_NewRef(given);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *get_timestamp(PyObject *self, PyObject *Py_UNUSED(none)) {
    message_t *one = (message_t *)self;
    return Py_BuildValue("(iL)", one->timestamp_type, (long long)one->timestamp_ms);
}

static PyObject *get_error(PyObject *self, PyObject *Py_UNUSED(none)) {
    message_t *one = (message_t *)self;
    return Py_NewRef(one->error == NULL ? Py_None : one->error);
}

static Py_ssize_t message_length(PyObject *self) {
    PyObject *value = ((message_t *)self)->value;
    return value == Py_None ? 0 : PyBytes_Size(value);
}

static PyMethodDef methods[] = {
    {"topic", get_topic, METH_NOARGS, "Its topic; None: an event of no topic."},
    {"partition", get_partition, METH_NOARGS, "Its partition."},
    {"offset", get_offset, METH_NOARGS, "Its offset."},
    {"key", get_key, METH_NOARGS, "Its key."},
    {"value", get_value, METH_NOARGS, "Its value; of an event, what it says."},
    {"headers", get_headers, METH_NOARGS, "Its headers; None: none. Raises SystemError if a name is not UTF-8."},
    {"set_headers", set_headers, METH_O, "What `headers` gives from now on."},
    {"timestamp", get_timestamp, METH_NOARGS, "Type of its timestamp, and milliseconds since the epoch."},
    {"error", get_error, METH_NOARGS, "The event that it stands for; None: it is a message."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_methods, methods},
    {Py_mp_length, message_length},
    {Py_tp_doc, "A fetched message, or an event in its place."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "_cues_kafka.Message",
    .basicsize = sizeof(message_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int add_message(PyObject *module) {
    message_type = PyType_FromSpec(&spec);
    return message_type == NULL ? -1 : PyModule_AddObjectRef(module, "Message", message_type);
}

static PyObject *bytes_or_none(const void *data, size_t size) {
    return data == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

/* The headers as a list of pairs, or None; NULL without an exception: a name is not UTF-8. */
static PyObject *headers_list(wire_t *wire) {
    headers_t *headers;
    PyObject *made, *pair;
    const char *name;
    const void *value;
    size_t size;
    if (library.message_headers(wire, &headers) != 0)
        return Py_NewRef(Py_None);
    if ((made = PyList_New(0)) == NULL)
        return NULL;
    for (size_t i = 0; library.header_get_all(headers, i, &name, &value, &size) == 0; i++) {
        PyObject *text = PyUnicode_FromString(name), *data = text == NULL ? NULL : bytes_or_none(value, size);
        pair = data == NULL ? NULL : PyTuple_Pack(2, text, data);
        Py_XDECREF(text);
        Py_XDECREF(data);
        if (pair == NULL || PyList_Append(made, pair) < 0) {
            Py_XDECREF(pair);
            Py_DECREF(made);
            if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
                PyErr_Clear();
            return NULL;
        }
        Py_DECREF(pair);
    }
    return made;
}

PyObject *message_of(wire_t *wire, PyObject *topic, PyObject *error_type) {
    message_t *one = (message_t *)((allocfunc)PyType_GetSlot((PyTypeObject *)message_type, Py_tp_alloc))(
        (PyTypeObject *)message_type, 0);
    if (one == NULL)
        return NULL;
    one->topic = Py_NewRef(topic);
    one->partition = wire->partition;
    one->offset = wire->offset;
    one->key = bytes_or_none(wire->key, wire->key_size);
    one->value = bytes_or_none(wire->value, wire->value_size);
    one->timestamp_ms = library.message_timestamp(wire, &one->timestamp_type);
    if (wire->error != 0) {
        one->error = PyObject_CallFunction(error_type, "is", wire->error, library.message_errstr(wire));
        one->headers = Py_NewRef(Py_None);
    } else {
        one->headers = headers_list(wire);
    }
    if (PyErr_Occurred() || one->key == NULL || one->value == NULL) {
        Py_DECREF(one);
        return NULL;
    }
    return (PyObject *)one;
}

/* Keys, values, headers and timestamps of messages, as columns; None: one is no message of this module, or has headers
 * that cannot be read. */
PyObject *columns_of(PyObject *Py_UNUSED(module), PyObject *messages) {
    PyObject *columns[4] = {NULL, NULL, NULL, NULL}, *made = NULL;
    Py_ssize_t count;
    if (!PyList_CheckExact(messages))
        Py_RETURN_NONE;
    count = PyList_Size(messages);
    for (int i = 0; i < 4; i++)
        if ((columns[i] = PyList_New(count)) == NULL)
            goto done;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *given = PyList_GetItem(messages, i), *time_ms;
        message_t *one = (message_t *)given;
        if ((PyObject *)Py_TYPE(given) != message_type || one->headers == NULL) {
            made = Py_NewRef(Py_None);
            goto done;
        }
        if ((time_ms = PyLong_FromLongLong(one->timestamp_ms)) == NULL)
            goto done;
        PyList_SetItem(columns[0], i, Py_NewRef(one->key));
        PyList_SetItem(columns[1], i, Py_NewRef(one->value));
        PyList_SetItem(columns[2], i, Py_NewRef(one->headers));
        PyList_SetItem(columns[3], i, time_ms);
    }
    made = Py_BuildValue("(OOOO)", columns[0], columns[1], columns[2], columns[3]);
done:
    for (int i = 0; i < 4; i++)
        Py_XDECREF(columns[i]);
    return made;
}
