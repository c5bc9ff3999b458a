/* What JSON and columns of Arrow share: text of UTF-8, and bytes that grow. */

#ifndef CUES_KAFKA_TEXT_H
#define CUES_KAFKA_TEXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* The kinds of a column, as `codecs.arrow.compiled` numbers them. */
enum { WHOLE = 0, NUMBER = 1, FLAG = 2, TEXT = 3, JSON = 4 };

enum { MOST_FIELDS = 64 }; /* of one record: bits of a mask */

/* Bytes that grow. After a failure `data` is still there. */
typedef struct {
    char *data;
    size_t size, room;
} grown_t;

/* Have room for more bytes; -1 with MemoryError. */
int grow(grown_t *grown, size_t more);

/* Whether these bytes are UTF-8: no surrogate, no form that is too long, nothing beyond U+10FFFF. */
int is_utf8(const unsigned char *at, const unsigned char *end);

/* Functions of the module. */
PyObject *read_json(PyObject *module, PyObject *args);
PyObject *write_json(PyObject *module, PyObject *args);
PyObject *carried(PyObject *module, PyObject *messages);
PyObject *message(PyObject *module, PyObject *args);

#endif
