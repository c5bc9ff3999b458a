/* What many messages carry, by column, without a Python call for each. */

#include "message.h"
#include "text.h"
#include <string.h>

PyObject *message(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *topic, *key, *value, *headers;
    int partition;
    long long offset, timestamp_ms;
    message_t *one;
    if (!PyArg_ParseTuple(args, "UiLOOOL:message", &topic, &partition, &offset, &key, &value, &headers, &timestamp_ms))
        return NULL;
    if ((key != Py_None && !PyBytes_CheckExact(key)) || (value != Py_None && !PyBytes_CheckExact(value)))
        return PyErr_Format(PyExc_TypeError, "key and value are bytes or None");
    one = (message_t *)((allocfunc)PyType_GetSlot((PyTypeObject *)message_type, Py_tp_alloc))(
        (PyTypeObject *)message_type, 0);
    if (one == NULL)
        return NULL;
    one->topic = Py_NewRef(topic), one->key = Py_NewRef(key), one->value = Py_NewRef(value);
    one->headers = Py_NewRef(headers);
    one->partition = partition, one->offset = offset;
    one->timestamp_ms = timestamp_ms, one->timestamp_type = 1;
    return (PyObject *)one;
}

/* The columns. `offsets`, `whens`, `ends` and `data` are buffers of Arrow, also of the keys. */
typedef struct {
    PyObject *values, *keys, *headers;
    int64_t *offsets, *whens;
    int32_t *ends;
    unsigned char *valid;
    grown_t data;
    int has_null;
} carried_t;

/* Take one message; 0: it is something else, -1: an exception. */
static int take(carried_t *into, PyObject *given, Py_ssize_t at) {
    message_t *one = (message_t *)given;
    if ((PyObject *)Py_TYPE(given) != message_type || one->headers == NULL || one->error != NULL)
        return 0;
    PyList_SetItem(into->values, at, Py_NewRef(one->value));
    PyList_SetItem(into->keys, at, Py_NewRef(one->key));
    PyList_SetItem(into->headers, at, Py_NewRef(one->headers));
    into->offsets[at] = one->offset, into->whens[at] = one->timestamp_ms;
    if (one->key == Py_None) {
        into->has_null = 1;
    } else {
        char *data;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(one->key, &data, &size) < 0 || grow(&into->data, (size_t)size) < 0)
            return -1;
        if (size > INT32_MAX - (Py_ssize_t)into->data.size)
            return 0;
        memcpy(into->data.data + into->data.size, data, (size_t)size);
        into->data.size += (size_t)size;
        into->valid[at / 8] |= (unsigned char)(1 << at % 8);
    }
    into->ends[at + 1] = (int32_t)into->data.size;
    return 1;
}

static PyObject *result(const carried_t *into, Py_ssize_t count) {
    PyObject *valid = into->has_null ? PyBytes_FromStringAndSize((char *)into->valid, (count + 7) / 8) : NULL;
    PyObject *made = NULL;
    if (!into->has_null)
        valid = Py_NewRef(Py_None);
    if (valid == NULL)
        return NULL;
    made = Py_BuildValue("OOOy#y#Oy#y#", into->values, into->keys, into->headers, (char *)into->offsets, count * 8,
        (char *)into->whens, count * 8, valid, (char *)into->ends, (count + 1) * 4,
        into->data.data == NULL ? "" : into->data.data, (Py_ssize_t)into->data.size);
    Py_DECREF(valid);
    return made;
}

PyObject *carried(PyObject *Py_UNUSED(module), PyObject *messages) {
    carried_t into = {0};
    PyObject *made = NULL;
    Py_ssize_t count;
    int took = 1;
    if (!PyList_Check(messages))
        Py_RETURN_NONE;
    count = PyList_Size(messages);
    into.values = PyList_New(count), into.keys = PyList_New(count);
    into.headers = PyList_New(count);
    into.offsets = PyMem_Calloc((size_t)count + 1, 8), into.whens = PyMem_Calloc((size_t)count + 1, 8);
    into.ends = PyMem_Calloc((size_t)count + 1, 4), into.valid = PyMem_Calloc((size_t)count / 8 + 1, 1);
    if (!into.values || !into.keys || !into.headers || !into.offsets || !into.whens || !into.ends || !into.valid)
        took = -1;
    for (Py_ssize_t i = 0; took > 0 && i < count; i++)
        took = take(&into, PyList_GetItem(messages, i), i);
    if (took > 0)
        made = result(&into, count);
    else if (took == 0)
        made = Py_NewRef(Py_None);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_XDECREF(into.values);
    Py_XDECREF(into.keys);
    Py_XDECREF(into.headers);
    PyMem_Free(into.offsets);
    PyMem_Free(into.whens);
    PyMem_Free(into.ends);
    PyMem_Free(into.valid);
    PyMem_Free(into.data.data);
    return made;
}
