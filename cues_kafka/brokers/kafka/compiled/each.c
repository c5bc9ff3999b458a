/* Decodes, calls and encodes message by message: what one step leaves behind serves the next one, and stays in the
 * processor's cache. Of the first one that is unusual it says how far that came, and Python goes on with it. */

#include "library.h"
#include <math.h>

enum { DECODE = 0, RAISED = 1, OUTPUT = 2 }; /* how far an unusual one came: `task.calling.tight` names them, too */
enum { DEEPEST = 16 };                       /* objects inside of each other that are looked at here */

typedef struct {
    PyObject *decode, *call, *encode, *checked; /* borrowed, like all that follows */
    PyObject *unusual;                          /* a type of results */
    PyObject *form;                             /* of usual results; see `codecs.json_usual` */
} way_t;

static int is_number(PyObject *value) { return PyFloat_CheckExact(value) && isfinite(PyFloat_AsDouble(value)); }

/* Whether a value is JSON as it is: text, whole and finite numbers, booleans, null, and containers of them. */
static int is_plain(PyObject *value, int depth) {
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBool_Type || value == Py_None)
        return 1;
    if (type == &PyFloat_Type)
        return is_number(value);
    if (depth >= DEEPEST)
        return 0;
    if (type == &PyDict_Type) {
        PyObject *key, *one;
        Py_ssize_t place = 0;
        while (PyDict_Next(value, &place, &key, &one))
            if (!PyUnicode_CheckExact(key) || !is_plain(one, depth + 1))
                return 0;
        return 1;
    }
    if (type == &PyList_Type) {
        for (Py_ssize_t i = 0; i < PyList_Size(value); i++)
            if (!is_plain(PyList_GetItem(value, i), depth + 1))
                return 0;
        return 1;
    }
    return 0;
}

/* Whether a field's value is of one of these types; of a number with a point also whether it is finite. */
static int fits(PyObject *value, PyObject *types) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(types); i++)
        if ((PyObject *)Py_TYPE(value) == PyTuple_GetItem(types, i))
            return !PyFloat_CheckExact(value) || is_number(value);
    return 0;
}

/* Whether a result is written as it is. Reading a field may call the user's code, which may raise: then it is not. */
static int is_usual(PyObject *result, PyObject *form) {
    PyObject *fields;
    if (PyTuple_Size(form) == 0)
        return PyDict_CheckExact(result) && is_plain(result, 0);
    if ((PyObject *)Py_TYPE(result) != PyTuple_GetItem(form, 0))
        return 0;
    fields = PyTuple_GetItem(form, 1);
    for (Py_ssize_t i = 0; i < PyTuple_Size(fields); i++) {
        PyObject *field = PyTuple_GetItem(fields, i);
        PyObject *value = PyObject_GetAttr(result, PyTuple_GetItem(field, 0));
        int fit;
        if (value == NULL) {
            PyErr_Clear();
            return 0;
        }
        fit = fits(value, PyTuple_GetItem(field, 1));
        Py_DECREF(value);
        if (!fit)
            return 0;
    }
    return 1;
}

/* The bytes of a result; NULL without an exception: it is unusual. */
static PyObject *encoded(const way_t *way, PyObject *result, Py_ssize_t limit) {
    PyObject *made, *encode;
    if ((PyObject *)Py_TYPE(result) == way->unusual)
        return NULL;
    encode = way->form != Py_None && is_usual(result, way->form) ? way->encode : way->checked;
    made = PyObject_CallFunctionObjArgs(encode, result, NULL);
    if (made == NULL) {
        PyErr_Clear(); /* Python asks again, and finds the same */
        return NULL;
    }
    if (!PyBytes_CheckExact(made) || PyBytes_Size(made) > limit)
        Py_CLEAR(made);
    return made;
}

static PyObject *stopped(int stage, PyObject *given) {
    PyObject *made = Py_BuildValue("[iO]", stage, given);
    Py_DECREF(given);
    return made;
}

static PyObject *raised(void) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return stopped(RAISED, error);
}

/* A form is None, (), or (class, ((name, (type, ...)), ...)). */
static int is_form(PyObject *form) {
    PyObject *fields;
    if (form == Py_None || (PyTuple_Check(form) && PyTuple_Size(form) == 0))
        return 1;
    if (!PyTuple_Check(form) || PyTuple_Size(form) != 2 || !PyTuple_Check(fields = PyTuple_GetItem(form, 1)))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(fields); i++) {
        PyObject *field = PyTuple_GetItem(fields, i);
        if (!PyTuple_Check(field) || PyTuple_Size(field) != 2 || !PyUnicode_Check(PyTuple_GetItem(field, 0)) ||
            !PyTuple_Check(PyTuple_GetItem(field, 1)))
            return 0;
    }
    return 1;
}

PyObject *each(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *coming, *data, *value;
    Py_ssize_t limit;
    way_t way;
    if (!PyArg_ParseTuple(args, "OO!O(OOOOO)n:each", &coming, &PyList_Type, &data, &way.call, &way.decode, &way.encode,
                          &way.checked, &way.unusual, &way.form, &limit))
        return NULL;
    if (!PyIter_Check(coming) || !is_form(way.form))
        return PyErr_Format(PyExc_TypeError, "each(%R)", args);
    while ((value = PyIter_Next(coming)) != NULL) {
        PyObject *decoded = PyObject_CallFunctionObjArgs(way.decode, value, NULL), *result, *made;
        Py_DECREF(value);
        if (decoded == NULL) {
            PyErr_Clear(); /* as above */
            return stopped(DECODE, Py_NewRef(Py_None));
        }
        result = PyObject_CallFunctionObjArgs(way.call, decoded, NULL);
        Py_DECREF(decoded);
        if (result == NULL)
            return raised();
        made = result == Py_None ? Py_NewRef(Py_None) : encoded(&way, result, limit);
        if (made == NULL)
            return stopped(OUTPUT, result);
        Py_DECREF(result);
        if (PyList_Append(data, made) < 0) {
            Py_DECREF(made);
            return NULL;
        }
        Py_DECREF(made);
    }
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
