/* Counts acknowledgements of what `produce` has sent, on librdkafka's own threads, without Python.
 *
 * librdkafka loads this module a second time, as a plugin of each producer that names it in `plugin.library.paths`, and
 * tells it of each message that the cluster has taken or refused. Messages with an opaque are those of the Python client,
 * which has reports of its own. */

#include "library.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NAME "cues-kafka"
#define TOPIC_SIZE 256 /* a topic's name has 249 characters at most */

typedef struct tally {
    struct tally *next;
    client_t *client;
    atomic_int holders; /* the client, and each Acknowledged of Python */
    atomic_llong delivered;
    pthread_mutex_t lock; /* guards what follows; nothing else is locked under it */
    int64_t failed;
    int error; /* of the first that failed */
    int32_t partition;
    char topic[TOPIC_SIZE];
} tally_t;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `list`; comes before no other */
static tally_t *list;

static void let_go(tally_t *tally) {
    if (atomic_fetch_sub(&tally->holders, 1) == 1) {
        pthread_mutex_destroy(&tally->lock);
        free(tally);
    }
}

static int on_acknowledgement(client_t *client, wire_t *message, void *opaque) {
    tally_t *tally = opaque;
    (void)client;
    if (message->opaque != NULL)
        return 0;
    if (message->error == 0) {
        atomic_fetch_add_explicit(&tally->delivered, 1, memory_order_release);
        return 0;
    }
    pthread_mutex_lock(&tally->lock);
    if (tally->failed++ == 0) {
        tally->error = message->error;
        tally->partition = message->partition;
        strncpy(tally->topic, message->topic ? library.topic_name(message->topic) : "", TOPIC_SIZE - 1);
    }
    pthread_mutex_unlock(&tally->lock);
    return 0;
}

static int on_destroy(client_t *client, void *opaque) {
    tally_t *tally = opaque, **place;
    (void)client;
    pthread_mutex_lock(&list_lock);
    for (place = &list; *place != NULL; place = &(*place)->next) {
        if (*place == tally) {
            *place = tally->next;
            break;
        }
    }
    pthread_mutex_unlock(&list_lock);
    let_go(tally);
    return 0;
}

static int on_new(client_t *client, const conf_t *conf, void *opaque, char *error, size_t size) {
    tally_t *tally = calloc(1, sizeof(*tally));
    int failed;
    (void)conf, (void)opaque, (void)error, (void)size;
    if (tally == NULL)
        return 0; /* the client works; `tally_of` finds none */
    tally->client = client;
    atomic_init(&tally->holders, 1);
    atomic_init(&tally->delivered, 0);
    pthread_mutex_init(&tally->lock, NULL);
    if ((failed = library.add_on_destroy(client, NAME, on_destroy, tally)) != 0) {
        let_go(tally);
        return failed;
    }
    pthread_mutex_lock(&list_lock);
    tally->next = list;
    list = tally;
    pthread_mutex_unlock(&list_lock);
    return library.add_on_acknowledgement(client, NAME, on_acknowledgement, tally);
}

/* librdkafka calls it for each producer that names this file as its plugin. */
__attribute__((visibility("default"))) int conf_init(conf_t *conf, void **opaque, char *error, size_t size) {
    (void)opaque, (void)error, (void)size;
    return library.add_on_new == NULL ? -1 : library.add_on_new(conf, NAME, on_new, NULL);
}

/* In Python */

typedef struct {
    PyObject_HEAD
    tally_t *tally;
} Tally;

static PyObject *tally_type;

static void tally_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tally_t *tally = ((Tally *)self)->tally;
    if (tally != NULL)
        let_go(tally);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *tally_read(PyObject *self, PyObject *Py_UNUSED(none)) {
    tally_t *tally = ((Tally *)self)->tally;
    char topic[TOPIC_SIZE];
    long long delivered = atomic_load_explicit(&tally->delivered, memory_order_acquire), failed;
    int error;
    int32_t partition;
    pthread_mutex_lock(&tally->lock);
    failed = tally->failed, error = tally->error, partition = tally->partition;
    memcpy(topic, tally->topic, TOPIC_SIZE);
    pthread_mutex_unlock(&tally->lock);
    return Py_BuildValue("(LLisi)", delivered, failed, error, topic, partition);
}

static PyObject *tally_reset(PyObject *self, PyObject *Py_UNUSED(none)) {
    tally_t *tally = ((Tally *)self)->tally;
    pthread_mutex_lock(&tally->lock);
    tally->failed = tally->error = 0;
    atomic_store(&tally->delivered, 0);
    pthread_mutex_unlock(&tally->lock);
    Py_RETURN_NONE;
}

static PyMethodDef tally_methods[] = {
    {"read", tally_read, METH_NOARGS, "Delivered, failed, and code, topic and partition of the first that failed."},
    {"reset", tally_reset, METH_NOARGS, "Count from zero."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tally_slots[] = {
    {Py_tp_dealloc, tally_dealloc},
    {Py_tp_methods, tally_methods},
    {Py_tp_doc, "Counts what the cluster has taken and refused of the records of one producer."},
    {0, NULL},
};

static PyType_Spec tally_spec = {
    .name = "_cues_kafka.Acknowledged",
    .basicsize = sizeof(Tally),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tally_slots,
};

int add_tally(PyObject *module) {
    tally_type = PyType_FromSpec(&tally_spec);
    return tally_type == NULL ? -1 : PyModule_AddObjectRef(module, "Acknowledged", tally_type);
}

PyObject *tally_of(PyObject *Py_UNUSED(module), PyObject *handle) {
    client_t *client = client_of(handle);
    tally_t *found;
    Tally *made;
    if (client == NULL)
        return NULL;
    pthread_mutex_lock(&list_lock);
    for (found = list; found != NULL && found->client != client; found = found->next)
        ;
    if (found != NULL)
        atomic_fetch_add(&found->holders, 1);
    pthread_mutex_unlock(&list_lock);
    if (found == NULL)
        Py_RETURN_NONE;
    made = (Tally *)((allocfunc)PyType_GetSlot((PyTypeObject *)tally_type, Py_tp_alloc))((PyTypeObject *)tally_type, 0);
    if (made == NULL) {
        let_go(found);
        return NULL;
    }
    made->tally = found;
    return (PyObject *)made;
}
