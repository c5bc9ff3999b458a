/* Enqueues records by column, without a Python call for each and without the lock of Python. */

#include "library.h"

/* Records that are taken from the columns before the lock of Python is let go: to get it back can take 5 ms, while the
 * function is called on another thread. Where the client's queue is full, those behind are taken again. */
enum { AT_ONCE = 4096 };
enum { UNUSUAL = 1 };   /* the next record needs the Python client */

typedef struct {
    PyObject *value_of, *key_of, *header_of; /* held, so that their bytes stay; NULL: none */
    const char *value, *key, *header;
    Py_ssize_t value_size, key_size, header_size;
    int64_t timestamp_ms;
    int32_t partition;
    topic_t *topic;
    headers_t *headers; /* NULL also where a header is given as bytes alone: they are made of it without the lock */
} record_t;

typedef struct {
    PyObject *topics, *partitions, *keys, *values, *headers, *times;
    const char *header_name; /* of a header that is given as bytes alone */
    Py_ssize_t header_name_size;
} columns_t;

/* Point to the bytes of an object: 1: it is bytes or None; 0: it is something else, or NULL. */
static int bytes_of(PyObject *object, PyObject **holder, const char **data, Py_ssize_t *size) {
    char *found;
    *holder = NULL, *data = NULL, *size = 0;
    if (object == NULL)
        return 0;
    if (object == Py_None)
        return 1;
    if (!PyBytes_CheckExact(object) || PyBytes_AsStringAndSize(object, &found, size) < 0)
        return 0;
    *data = found;
    *holder = Py_NewRef(object);
    return 1;
}

/* Add one pair of name and value; 0: it is not of text and bytes. */
static int add_pair(headers_t *headers, PyObject *pair) {
    const char *name, *value = NULL;
    char *found;
    Py_ssize_t name_size, size = 0;
    PyObject *given;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2 || !PyUnicode_Check(PyTuple_GetItem(pair, 0)))
        return 0;
    if ((name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 0), &name_size)) == NULL) {
        PyErr_Clear();
        return 0;
    }
    given = PyTuple_GetItem(pair, 1);
    if (PyBytes_CheckExact(given)) {
        if (PyBytes_AsStringAndSize(given, &found, &size) < 0) {
            PyErr_Clear();
            return 0;
        }
        value = found;
    } else if (given != Py_None) {
        return 0;
    }
    return library.header_add(headers, name, name_size, value, size) == 0;
}

/* Take the headers of one record: bytes are the value of one header, a list has pairs; 0: it is something else. */
static int headers_of(PyObject *given, record_t *record) {
    Py_ssize_t count;
    if (given == NULL)
        return 0;
    if (given == Py_None)
        return 1;
    if (PyBytes_CheckExact(given))
        return bytes_of(given, &record->header_of, &record->header, &record->header_size);
    if (!PyList_CheckExact(given))
        return 0;
    count = PyList_Size(given);
    record->headers = library.headers_new(count > 0 ? (size_t)count : 1);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!add_pair(record->headers, PyList_GetItem(given, i)))
            return 0;
    return 1;
}

static void release(record_t *record) {
    Py_CLEAR(record->value_of);
    Py_CLEAR(record->key_of);
    Py_CLEAR(record->header_of);
    if (record->headers != NULL)
        library.headers_destroy(record->headers);
    record->headers = NULL;
}

/* Take one record from the columns; 0: the Python client must. The topic is set by the caller. */
static int take(const columns_t *columns, Py_ssize_t index, record_t *record) {
    PyObject *partition_of = PyList_GetItem(columns->partitions, index), *time_of = PyList_GetItem(columns->times, index);
    long partition = partition_of == NULL ? -1 : PyLong_AsLong(partition_of);
    long long time_ms = time_of == NULL ? -1 : PyLong_AsLongLong(time_of);
    record->value_of = record->key_of = record->header_of = NULL;
    record->headers = NULL;
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    record->partition = (int32_t)partition;
    record->timestamp_ms = time_ms;
    if (record->partition != partition ||
        !bytes_of(PyList_GetItem(columns->values, index), &record->value_of, &record->value, &record->value_size) ||
        !bytes_of(PyList_GetItem(columns->keys, index), &record->key_of, &record->key, &record->key_size) ||
        !headers_of(PyList_GetItem(columns->headers, index), record)) {
        release(record);
        return 0;
    }
    return 1;
}

/* Enqueue records in their order, without the lock of Python; gives how many, and why no more. */
static Py_ssize_t enqueue(client_t *client, const columns_t *columns, record_t *records, Py_ssize_t count, int *error) {
    for (Py_ssize_t i = 0; i < count; i++) {
        record_t *one = &records[i];
        if (one->header_of != NULL) {
            one->headers = library.headers_new(1);
            *error = library.header_add(one->headers, columns->header_name, columns->header_name_size, one->header,
                                        one->header_size);
            if (*error != 0)
                return i;
        }
        *error = library.producev(
            client, TOPIC, one->topic, PARTITION, one->partition, FLAGS, COPY, VALUE, one->value, (size_t)one->value_size,
            KEY, one->key, (size_t)one->key_size, TIMESTAMP, one->timestamp_ms, OPAQUE, NULL, HEADERS, one->headers, END);
        if (*error != 0)
            return i;
        one->headers = NULL; /* the library has them now */
    }
    return count;
}

static int columns_are(const columns_t *columns, Py_ssize_t *length) {
    PyObject *const all[] = {columns->topics, columns->partitions, columns->keys,
                             columns->values, columns->headers,    columns->times};
    *length = PyList_Size(columns->values);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (PyList_Size(all[i]) != *length) {
            PyErr_SetString(PyExc_ValueError, "columns that differ in length");
            return 0;
        }
    }
    return 1;
}

PyObject *produce(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *handle, *known = NULL;
    columns_t columns;
    Py_ssize_t start, length, done;
    client_t *client;
    topic_t *topic = NULL;
    int error = 0;
    record_t *records;

    if (!PyArg_ParseTuple(args, "On(O!O!O!O!O!O!)s#:produce", &handle, &start, &PyList_Type, &columns.topics,
                          &PyList_Type, &columns.partitions, &PyList_Type, &columns.keys, &PyList_Type, &columns.values,
                          &PyList_Type, &columns.headers, &PyList_Type, &columns.times, &columns.header_name,
                          &columns.header_name_size) ||
        (client = client_of(handle)) == NULL || !columns_are(&columns, &length))
        return NULL;
    if (start < 0 || start > length)
        return PyErr_Format(PyExc_ValueError, "%zd is outside of %zd records", start, length);
    if ((records = PyMem_Malloc((length - start < AT_ONCE ? length - start : AT_ONCE) * sizeof(*records))) == NULL)
        return PyErr_NoMemory();
    for (done = start; done < length && error == 0;) {
        Py_ssize_t count = 0, sent;
        while (count < AT_ONCE && done + count < length) {
            PyObject *name = PyList_GetItem(columns.topics, done + count);
            if (name != known) { /* the records of one topic have the same object */
                const char *text;
                topic_t *other;
                if (count > 0)
                    break; /* those before need their topic */
                text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
                other = text == NULL ? NULL : library.topic_new(client, text, NULL);
                PyErr_Clear();
                if (other == NULL) {
                    error = UNUSUAL;
                    break;
                }
                if (topic != NULL)
                    library.topic_destroy(topic);
                Py_XDECREF(known);
                topic = other, known = Py_NewRef(name); /* held, so that no other name gets its address */
            }
            if (!take(&columns, done + count, &records[count])) {
                error = UNUSUAL;
                break;
            }
            records[count++].topic = topic;
        }
        int refused = 0;
        Py_BEGIN_ALLOW_THREADS
        sent = enqueue(client, &columns, records, count, &refused);
        Py_END_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++)
            release(&records[i]);
        done += sent;
        error = refused != 0 ? refused : error;
    }
    if (topic != NULL)
        library.topic_destroy(topic);
    Py_XDECREF(known);
    PyMem_Free(records);
    return Py_BuildValue("(ni)", done - start, error);
}
