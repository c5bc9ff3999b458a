/* Makes a fetched message of Python. */

#ifndef CUES_KAFKA_MESSAGE_H
#define CUES_KAFKA_MESSAGE_H

#include "library.h"

typedef struct {
    PyObject_HEAD
    PyObject *topic, *key, *value; /* never NULL */
    PyObject *headers; /* NULL: a name is not UTF-8 */
    PyObject *error; /* NULL: none */
    int64_t offset, timestamp_ms;
    int32_t partition;
    int timestamp_type;
} message_t;

extern PyObject *message_type;

/* Copy a message, or an event, whose error becomes `error_type(code, text)`; NULL with an exception. */
PyObject *message_of(wire_t *wire, PyObject *topic, PyObject *error_type);

/* Adds the type `Message`; -1 with an exception. */
int add_message(PyObject *module);

#endif
