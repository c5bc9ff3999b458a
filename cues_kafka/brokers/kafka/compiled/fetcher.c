/* Takes fetched messages from a queue of its own, many at once, and lets go of Python's lock while it waits.
 *
 * The consumer's own queue also has callbacks of the Python client, which only that client may serve. So the queues of
 * partitions are forwarded to one that has messages and events alone. When librdkafka stops a partition, some time after
 * it was unassigned, it ends the forwarding. So `forward` is called again until something of the partition comes; what
 * came meanwhile is moved, in its order. */

#include "message.h"

typedef struct {
    PyObject_HEAD
    PyObject *consumer; /* held, so that its client lives */
    PyObject *error_type;
    PyObject *topics; /* the names of topics, so that all messages of one have the same object */
    queue_t *queue; /* NULL: closed */
    int waiting;    /* calls of `take` that wait without Python's lock */
} Fetcher;

static PyObject *fetcher_type;

static void let_go_of_queue(Fetcher *fetcher) {
    queue_t *queue = fetcher->queue;
    fetcher->queue = NULL;
    if (queue != NULL && fetcher->waiting == 0)
        library.queue_destroy(queue);
}

static void fetcher_dealloc(PyObject *self) {
    Fetcher *fetcher = (Fetcher *)self;
    PyTypeObject *type = Py_TYPE(self);
    let_go_of_queue(fetcher);
    Py_XDECREF(fetcher->consumer);
    Py_XDECREF(fetcher->error_type);
    Py_XDECREF(fetcher->topics);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *closed(void) {
    PyErr_SetString(PyExc_RuntimeError, "the fetcher is closed");
    return NULL;
}

static PyObject *forward(PyObject *self, PyObject *args) {
    Fetcher *fetcher = (Fetcher *)self;
    client_t *client;
    queue_t *partition_queue;
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(args, "si:forward", &topic, &partition))
        return NULL;
    if (fetcher->queue == NULL)
        return closed();
    if ((client = client_of(fetcher->consumer)) == NULL)
        return NULL;
    if ((partition_queue = library.queue_get_partition(client, topic, partition)) == NULL)
        return PyErr_Format(PyExc_RuntimeError, "the client has no queue for %s/%d", topic, partition);
    Py_BEGIN_ALLOW_THREADS
    library.queue_forward(partition_queue, fetcher->queue);
    library.queue_destroy(partition_queue);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* The name of a topic, the same object for all of its messages; borrowed. */
static PyObject *name_of_topic(Fetcher *fetcher, const topic_t *topic) {
    const char *text;
    PyObject *name, *known;
    if (topic == NULL)
        return Py_None;
    text = library.topic_name(topic);
    if ((name = PyUnicode_FromString(text)) == NULL)
        return NULL;
    if ((known = PyDict_GetItemWithError(fetcher->topics, name)) == NULL && !PyErr_Occurred() &&
        PyDict_SetItem(fetcher->topics, name, name) == 0)
        known = PyDict_GetItemWithError(fetcher->topics, name);
    Py_DECREF(name);
    return known;
}

/* What one call of `take` has made so far. */
typedef struct {
    Fetcher *fetcher;
    client_t *client;
    PyThreadState *apart; /* NULL: this thread has Python's lock */
    PyObject *made;       /* NULL with an exception: a message could not be made */
    Py_ssize_t most;
    const topic_t *topic; /* of the last message */
    PyObject *name;       /* of that topic; borrowed */
} taking_t;

/* Make a message of what librdkafka hands out; it takes it back behind this call. */
static void took(wire_t *wire, void *opaque) {
    taking_t *taking = opaque;
    PyObject *one = NULL;
    if (taking->apart != NULL) {
        PyEval_RestoreThread(taking->apart);
        taking->apart = NULL;
    }
    /* That a partition is gone is no event of the client's either. It may come back. */
    if (taking->made == NULL || wire->error == NO_TOPIC || wire->error == NO_PARTITION)
        return;
    if (taking->name == NULL || wire->topic != taking->topic)
        taking->name = name_of_topic(taking->fetcher, taking->topic = wire->topic);
    if (taking->name != NULL)
        one = message_of(wire, taking->name, taking->fetcher->error_type);
    if (one == NULL || PyList_Append(taking->made, one) < 0)
        Py_CLEAR(taking->made);
    Py_XDECREF(one);
    if (taking->made == NULL || PyList_Size(taking->made) >= taking->most)
        library.yield(taking->client); /* what is left stays in the queue */
}

static PyObject *take(PyObject *self, PyObject *args) {
    Fetcher *fetcher = (Fetcher *)self;
    queue_t *queue = fetcher->queue;
    PyObject *held;
    double timeout_s;
    taking_t taking = {.fetcher = fetcher};
    if (!PyArg_ParseTuple(args, "dn:take", &timeout_s, &taking.most))
        return NULL;
    if (queue == NULL)
        return closed();
    if (taking.most < 1 || taking.most > 1000000 || !(timeout_s >= 0 && timeout_s < 1000000))
        return PyErr_Format(PyExc_ValueError, "take(%R)", args);
    if ((taking.client = client_of(fetcher->consumer)) == NULL || (taking.made = PyList_New(0)) == NULL)
        return NULL;
    held = Py_NewRef(self);
    fetcher->waiting++;
    taking.apart = PyEval_SaveThread();
    /* It waits for the first message or event only. `consume_batch` would serve errors of a partition, such as that it
     * is gone, by the callback of the Python client, which ends the process outside of that client's own calls. */
    library.consume_callback(queue, (int)(timeout_s * 1000), took, &taking);
    if (taking.apart != NULL)
        PyEval_RestoreThread(taking.apart);
    if (--fetcher->waiting == 0 && fetcher->queue == NULL)
        library.queue_destroy(queue); /* it was closed meanwhile */
    Py_DECREF(held);
    return taking.made;
}

static PyObject *fetcher_close(PyObject *self, PyObject *Py_UNUSED(none)) {
    let_go_of_queue((Fetcher *)self);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"forward", forward, METH_VARARGS, "Have what is fetched of a topic's partition come here."},
    {"take", take, METH_VARARGS, "Wait so many seconds for one message, then take what is there, up to a number."},
    {"close", fetcher_close, METH_NOARGS, "Let go of the queue, before the consumer is closed."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, fetcher_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Takes what a consumer has fetched. For one thread."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "_cues_kafka.Fetcher",
    .basicsize = sizeof(Fetcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int add_fetcher(PyObject *module) {
    fetcher_type = PyType_FromSpec(&spec);
    return fetcher_type == NULL ? -1 : PyModule_AddObjectRef(module, "Fetcher", fetcher_type);
}

PyObject *fetcher_of(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *consumer, *error_type;
    client_t *client;
    Fetcher *made;
    if (!PyArg_ParseTuple(args, "OO:fetcher_of", &consumer, &error_type) || (client = client_of(consumer)) == NULL)
        return NULL;
    made = (Fetcher *)((allocfunc)PyType_GetSlot((PyTypeObject *)fetcher_type, Py_tp_alloc))(
        (PyTypeObject *)fetcher_type, 0);
    if (made == NULL)
        return NULL;
    made->consumer = Py_NewRef(consumer);
    made->error_type = Py_NewRef(error_type);
    made->topics = PyDict_New();
    made->queue = library.queue_new(client);
    if (made->topics == NULL || made->queue == NULL) {
        Py_DECREF(made);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)made;
}
