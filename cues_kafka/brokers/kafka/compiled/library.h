/* What the module calls in librdkafka: the few functions of its public interface that are used here, declared in our own
 * words and looked up by name in the library that confluent-kafka has loaded. So nothing is linked, and a library that
 * lacks one of them is refused before a client exists. */

#ifndef CUES_KAFKA_LIBRARY_H
#define CUES_KAFKA_LIBRARY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct client client_t;   /* one Producer or Consumer of librdkafka */
typedef struct topic topic_t;     /* a topic as a client knows it */
typedef struct queue queue_t;     /* where a client puts what it has fetched */
typedef struct headers headers_t; /* the headers of one message */
typedef struct conf conf_t;       /* the settings of a client that is being made */

/* A message, as librdkafka hands it out. */
typedef struct {
    int error; /* 0: none */
    topic_t *topic;
    int32_t partition;
    void *value; /* NULL: none */
    size_t value_size;
    void *key; /* NULL: none */
    size_t key_size;
    int64_t offset;
    void *opaque; /* what the message was produced with */
} wire_t;

typedef int (*on_new_f)(client_t *, const conf_t *, void *, char *, size_t);
typedef int (*on_destroy_f)(client_t *, void *);
typedef void (*consumed_f)(wire_t *, void *);
typedef int (*on_acknowledgement_f)(client_t *, wire_t *, void *);

/* The kinds of arguments of `producev`, and its flag. */
enum { END = 0, TOPIC = 2, PARTITION = 3, VALUE = 4, KEY = 5, OPAQUE = 6, FLAGS = 7, TIMESTAMP = 8, HEADERS = 10 };
enum { COPY = 2 };

/* Codes of errors that are told apart. */
enum { QUEUE_FULL = -184, NO_TOPIC = -188, NO_PARTITION = -190 };

typedef struct {
    const char *(*name)(const client_t *);
    const char *(*topic_name)(const topic_t *);
    topic_t *(*topic_new)(client_t *, const char *, void *);
    void (*topic_destroy)(topic_t *);
    int (*producev)(client_t *, ...);
    int (*last_error)(void);
    headers_t *(*headers_new)(size_t);
    void (*headers_destroy)(headers_t *);
    int (*header_add)(headers_t *, const char *, Py_ssize_t, const void *, Py_ssize_t);
    int (*message_headers)(const wire_t *, headers_t **);
    int (*header_get_all)(const headers_t *, size_t, const char **, const void **, size_t *);
    int64_t (*message_timestamp)(const wire_t *, int *);
    const char *(*message_errstr)(const wire_t *);
    queue_t *(*queue_new)(client_t *);
    void (*queue_destroy)(queue_t *);
    queue_t *(*queue_get_partition)(client_t *, const char *, int32_t);
    void (*queue_forward)(queue_t *, queue_t *);
    int (*consume_callback)(queue_t *, int, consumed_f, void *);
    void (*yield)(client_t *);
    int (*add_on_new)(conf_t *, const char *, on_new_f, void *);
    int (*add_on_destroy)(client_t *, const char *, on_destroy_f, void *);
    int (*add_on_acknowledgement)(client_t *, const char *, on_acknowledgement_f, void *);
} library_t;

extern library_t library;

/* The client inside a Producer or a Consumer; NULL with an exception: it is closed, or something else. */
client_t *client_of(PyObject *handle);

/* Functions of the module. */
PyObject *bind_library(PyObject *module, PyObject *args);
PyObject *name_of(PyObject *module, PyObject *handle);
PyObject *produce(PyObject *module, PyObject *args);
PyObject *tally_of(PyObject *module, PyObject *handle);
PyObject *fetcher_of(PyObject *module, PyObject *args);
PyObject *columns_of(PyObject *module, PyObject *messages);
PyObject *each(PyObject *module, PyObject *args);

/* Add the types of these names; -1 with an exception. */
int add_tally(PyObject *module);
int add_fetcher(PyObject *module);

#endif
