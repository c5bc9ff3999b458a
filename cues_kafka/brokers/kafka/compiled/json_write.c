/* Writes rows of Arrow's columns as JSON, each as the codec of the class would, or not at all: then Python writes them. */

#include "text.h"
#include <string.h>

typedef struct {
    int kind;
    const char *prefix; /* what stands before the value: brace or comma, name, colon */
    Py_ssize_t prefix_size, first; /* `first`: the row in the buffers that is the first one here */
    Py_buffer valid, ends, data; /* `obj` is NULL where there is none */
} column_t;

static int bit(const Py_buffer *buffer, Py_ssize_t at) {
    return ((const unsigned char *)buffer->buf)[at / 8] >> at % 8 & 1;
}

static int32_t end_at(const column_t *column, Py_ssize_t at) {
    int32_t end;
    memcpy(&end, (const char *)column->ends.buf + at * 4, 4);
    return end;
}

/* Have a buffer of at least so many bytes; -1 with an exception. None is an empty one. */
static int open_buffer(PyObject *given, Py_buffer *buffer, Py_ssize_t least) {
    if (given != Py_None && PyObject_GetBuffer(given, buffer, PyBUF_SIMPLE) < 0)
        return -1;
    if (least > (given == Py_None ? 0 : buffer->len)) {
        PyErr_SetString(PyExc_ValueError, "a buffer is too short for its rows");
        return -1;
    }
    return 0;
}

static int open_column(column_t *column, PyObject *given, Py_ssize_t rows) {
    PyObject *valid, *ends, *data;
    Py_ssize_t last, least;
    int texts;
    if (!PyArg_ParseTuple(given, "y#inOOO:column", &column->prefix, &column->prefix_size, &column->kind, &column->first,
            &valid, &ends, &data))
        return -1;
    texts = column->kind == TEXT || column->kind == JSON;
    if (column->first < 0 || rows > PY_SSIZE_T_MAX / 16 - column->first || column->kind < WHOLE || column->kind > JSON ||
        column->kind == NUMBER) {
        PyErr_SetString(PyExc_ValueError, "no such column");
        return -1;
    }
    last = column->first + rows;
    least = texts || rows == 0 ? 0 : column->kind == FLAG ? (last + 7) / 8 : last * 8;
    if (open_buffer(valid, &column->valid, valid == Py_None ? 0 : (last + 7) / 8) < 0 ||
        open_buffer(ends, &column->ends, texts && rows ? (last + 1) * 4 : 0) < 0 ||
        open_buffer(data, &column->data, least) < 0)
        return -1;
    return 0;
}

static int add(grown_t *out, const char *data, size_t size) {
    if (grow(out, size) < 0)
        return -1;
    memcpy(out->data + out->size, data, size);
    out->size += size;
    return 0;
}

static int add_whole(grown_t *out, int64_t whole) {
    char digits[20];
    int at = sizeof(digits);
    uint64_t rest = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (whole < 0)
        digits[--at] = '-';
    return add(out, digits + at, sizeof(digits) - (size_t)at);
}

/* Add a text with its quotes and escapes; 1: it is not UTF-8, -1: an exception. */
static int add_text(grown_t *out, const unsigned char *at, const unsigned char *end) {
    static const char hex[] = "0123456789abcdef";
    const unsigned char *one;
    int ascii = 1;
    char *into;
    if (grow(out, (size_t)(end - at) * 6 + 2) < 0)
        return -1;
    into = out->data + out->size;
    *into++ = '"';
    for (one = at; one < end; one++) {
        unsigned char byte = *one;
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            *into++ = (char)byte;
            ascii &= byte < 0x80;
            continue;
        }
        *into++ = '\\';
        switch (byte) {
        case '"':
        case '\\': *into++ = (char)byte; break;
        case '\b': *into++ = 'b'; break;
        case '\f': *into++ = 'f'; break;
        case '\n': *into++ = 'n'; break;
        case '\r': *into++ = 'r'; break;
        case '\t': *into++ = 't'; break;
        default:
            memcpy(into, "u00", 3);
            into[3] = hex[byte >> 4], into[4] = hex[byte & 15], into += 5;
        }
    }
    *into++ = '"';
    out->size = (size_t)(into - out->data);
    return !ascii && !is_utf8(at, end);
}

/* Add the value of a row; 1: another writer has to, -1: an exception. */
static int add_value(grown_t *out, const column_t *column, Py_ssize_t row) {
    Py_ssize_t at = column->first + row;
    const unsigned char *data = column->data.buf;
    int32_t begin, end;
    int64_t whole;
    if (column->valid.obj != NULL && !bit(&column->valid, at))
        return add(out, "null", 4);
    switch (column->kind) {
    case WHOLE: memcpy(&whole, data + at * 8, 8); return add_whole(out, whole);
    case FLAG: return bit(&column->data, at) ? add(out, "true", 4) : add(out, "false", 5);
    default:
        begin = end_at(column, at), end = end_at(column, at + 1);
        if (begin < 0 || begin > end || end > column->data.len)
            return 1;
        if (column->kind == TEXT)
            return begin == end ? add(out, "\"\"", 2) : add_text(out, data + begin, data + end);
        return add(out, (const char *)data + begin, (size_t)(end - begin));
    }
}

/* Write a row; 1 and -1 as above. */
static int add_row(grown_t *out, const column_t *columns, Py_ssize_t count, Py_ssize_t row) {
    out->size = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int wrong;
        if (add(out, columns[i].prefix, (size_t)columns[i].prefix_size) < 0)
            return -1;
        if ((wrong = add_value(out, &columns[i], row)) != 0)
            return wrong;
    }
    return add(out, "}", 1);
}

/* The rows as a list of bytes; None: another writer has to write them; NULL: an exception. */
static PyObject *write_all(const column_t *columns, Py_ssize_t count, Py_ssize_t rows) {
    grown_t out = {NULL, 0, 0};
    PyObject *made = PyList_New(rows);
    for (Py_ssize_t row = 0; made != NULL && row < rows; row++) {
        PyObject *one = NULL;
        int wrong = add_row(&out, columns, count, row);
        if (wrong == 0)
            one = PyBytes_FromStringAndSize(out.data, (Py_ssize_t)out.size);
        if (one == NULL) {
            Py_DECREF(made);
            made = wrong > 0 ? Py_NewRef(Py_None) : NULL;
            break;
        }
        PyList_SetItem(made, row, one);
    }
    PyMem_Free(out.data);
    return made;
}

static void close_buffer(Py_buffer *buffer) {
    if (buffer->obj != NULL)
        PyBuffer_Release(buffer);
}

PyObject *write_json(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given, *made = NULL;
    column_t *columns;
    Py_ssize_t rows, count, opened = 0;
    if (!PyArg_ParseTuple(args, "nO!:write_json", &rows, &PyTuple_Type, &given))
        return NULL;
    count = PyTuple_Size(given);
    if (rows < 0)
        return PyErr_Format(PyExc_ValueError, "%zd rows", rows);
    if ((columns = PyMem_Calloc((size_t)count + 1, sizeof(column_t))) == NULL)
        return PyErr_NoMemory();
    while (opened < count && open_column(&columns[opened], PyTuple_GetItem(given, opened), rows) == 0)
        opened++;
    if (opened == count)
        made = write_all(columns, count, rows);
    for (Py_ssize_t i = 0; i < count; i++) {
        close_buffer(&columns[i].valid);
        close_buffer(&columns[i].ends);
        close_buffer(&columns[i].data);
    }
    PyMem_Free(columns);
    return made;
}
