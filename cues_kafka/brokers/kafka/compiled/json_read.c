/* Reads JSON of flat records into the buffers of Arrow's columns.
 *
 * It takes the usual only, and it decides nothing else: a message with anything in it that another reader might see in
 * another way is *doubtful*. It gets no row, and Python asks the codec of the topic for it. So a value, a default and
 * the text of an error are the codec's, and a mistake here can only be that something doubtful is taken for usual.
 *
 * Doubtful are: what is no object, or no JSON; names with escapes, or names twice; fields that are missing, unless they
 * are null then; null where it is not declared; whole numbers of more than 18 digits, with a fraction, or -0; infinity;
 * halves of surrogate pairs; text that is not UTF-8; records within unknown fields beyond a depth. */

#include "text.h"
#include <math.h>
#include <string.h>

enum { MOST_DIGITS = 18 }; /* of a whole number: 10**18 < 2**63 */
enum { MOST_DEPTH = 16 };  /* of what stands in unknown fields */
enum { NULLABLE = 1, MAY_LACK = 2, ABSENT = 0, PRESENT = 1, IS_NULL = 2, ESCAPED = 3 };

typedef struct {
    const char *name;
    Py_ssize_t name_size;
    int kind, flags;
    /* of the row that is read */
    int state;
    int64_t whole; /* also a flag */
    double number;
    const char *text;
    Py_ssize_t text_size;
    /* of the rows so far */
    grown_t data;
    int32_t *ends; /* of texts: where each begins, and the end of the last */
    unsigned char *valid;
    Py_ssize_t nulls;
} field_t;

typedef struct {
    const char *at, *end;
} input_t;

static void skip_space(input_t *in) {
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\t' || *in->at == '\r'))
        in->at++;
}

/* Step over this byte behind space; 0: another one stands there. */
static int take(input_t *in, char byte) {
    skip_space(in);
    if (in->at == in->end || *in->at != byte)
        return 0;
    in->at++;
    return 1;
}

static int take_word(input_t *in, const char *word, Py_ssize_t size) {
    if (in->end - in->at < size || memcmp(in->at, word, (size_t)size) != 0)
        return 0;
    in->at += size;
    return 1;
}

static int is_digit(input_t *in) { return in->at < in->end && *in->at >= '0' && *in->at <= '9'; }

/* Four digits of hexadecimal; -1: they are something else. */
static int hex4(const char *at) {
    int code = 0;
    for (int i = 0; i < 4; i++) {
        char one = at[i];
        int digit = one >= '0' && one <= '9' ? one - '0' : one >= 'a' && one <= 'f' ? one - 'a' + 10
            : one >= 'A' && one <= 'F' ? one - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Whether eight bytes of a text stand for themselves: ASCII without controls, quotes and escapes. */
static int are_plain(const char *at) {
    const uint64_t ones = 0x0101010101010101, high = ones << 7;
    uint64_t bytes, quote, escape;
    memcpy(&bytes, at, 8);
    quote = bytes ^ ones * '"', escape = bytes ^ ones * '\\';
    /* A byte below n borrows into its high bit when n is taken from it; a high bit that was set says so itself. */
    return ((bytes | (bytes - ones * 0x20) | (quote - ones) | (escape - ones)) & high) == 0;
}

/* Step over a text whose opening quote has been taken. Gives PRESENT, or ESCAPED, or 0: it is doubtful. */
static int take_text(input_t *in, const char **text, Py_ssize_t *size) {
    const char *begin = in->at, *at = begin, *end = in->end;
    int escaped = 0, ascii = 1;
    for (;; at++) {
        unsigned char byte;
        while (end - at >= 8 && are_plain(at))
            at += 8;
        if (at == end)
            return 0;
        byte = (unsigned char)*at;
        if (byte == '"')
            break;
        if (byte < 0x20)
            return 0;
        if (byte >= 0x80) {
            ascii = 0;
        } else if (byte == '\\') {
            int code;
            escaped = 1;
            if (++at == end)
                return 0;
            if (*at == 'u') {
                if (end - at < 5 || (code = hex4(at + 1)) < 0 || (code >= 0xD800 && code <= 0xDFFF))
                    return 0;
                at += 4;
            } else if (strchr("\"\\/bfnrt", *at) == NULL || *at == 0) {
                return 0;
            }
        }
    }
    *text = begin, *size = at - begin;
    in->at = at + 1;
    if (!ascii && !is_utf8((const unsigned char *)begin, (const unsigned char *)at))
        return 0;
    return escaped ? ESCAPED : PRESENT;
}

/* Write a text without its escapes, of which `take_text` has seen that they are right; gives where it ends. */
static char *unescaped(const char *at, const char *end, char *into) {
    while (at < end) {
        int code;
        if (*at != '\\') {
            *into++ = *at++;
            continue;
        }
        at++;
        switch (*at++) {
        case 'b': *into++ = '\b'; break;
        case 'f': *into++ = '\f'; break;
        case 'n': *into++ = '\n'; break;
        case 'r': *into++ = '\r'; break;
        case 't': *into++ = '\t'; break;
        case 'u':
            code = hex4(at);
            at += 4;
            if (code < 0x80) {
                *into++ = (char)code;
            } else if (code < 0x800) {
                *into++ = (char)(0xC0 | code >> 6), *into++ = (char)(0x80 | (code & 0x3F));
            } else {
                *into++ = (char)(0xE0 | code >> 12), *into++ = (char)(0x80 | (code >> 6 & 0x3F));
                *into++ = (char)(0x80 | (code & 0x3F));
            }
            break;
        default: *into++ = at[-1];
        }
    }
    return into;
}

/* Step over a number. It has `digits` digits in all, and is whole unless `fraction` or `exponent` is set. */
typedef struct {
    const char *begin;
    int negative, digits, fraction, exponent; /* `fraction`: its digits; `exponent`: whether there is one */
    uint64_t mantissa; /* of the first 19 digits; more are not counted, and `digits` says so */
    int power;         /* of ten, of the exponent */
} number_t;

static int take_number(input_t *in, number_t *number) {
    int power = 0, minus = 0;
    *number = (number_t){.begin = in->at};
    if (in->at < in->end && *in->at == '-')
        number->negative = 1, in->at++;
    if (!is_digit(in))
        return 0;
    if (*in->at == '0') {
        in->at++, number->digits = 1;
    } else {
        for (; is_digit(in); in->at++)
            if (number->digits++ < 19)
                number->mantissa = number->mantissa * 10 + (uint64_t)(*in->at - '0');
    }
    if (in->at < in->end && *in->at == '.') {
        in->at++;
        if (!is_digit(in))
            return 0;
        for (; is_digit(in); in->at++, number->fraction++)
            if (number->digits++ < 19)
                number->mantissa = number->mantissa * 10 + (uint64_t)(*in->at - '0');
    }
    if (in->at < in->end && (*in->at == 'e' || *in->at == 'E')) {
        in->at++, number->exponent = 1;
        if (in->at < in->end && (*in->at == '+' || *in->at == '-'))
            minus = *in->at++ == '-';
        if (!is_digit(in))
            return 0;
        for (; is_digit(in); in->at++)
            if (power < 10000)
                power = power * 10 + (*in->at - '0');
    }
    number->power = minus ? -power : power;
    return !is_digit(in); /* no digit stands behind a leading zero */
}

static int is_whole(const number_t *number) {
    return !number->fraction && !number->exponent && number->digits <= MOST_DIGITS &&
        !(number->negative && number->mantissa == 0);
}

/* The nearest double; 0: it is doubtful. The message's bytes end with a zero, so no reader goes beyond them. */
static int double_of(const number_t *number, const char *end, double *into) {
    static const double tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int power = number->power - number->fraction;
    char *stopped;
    if (!number->fraction && !number->exponent && !is_whole(number))
        return 0;
    if (number->digits <= 15 && power >= -22 && power <= 22) { /* both are exact, so one operation rounds once */
        double found = (double)number->mantissa;
        found = power < 0 ? found / tens[-power] : found * tens[power];
        *into = number->negative ? -found : found;
        return 1;
    }
    *into = PyOS_string_to_double(number->begin, &stopped, NULL);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return stopped == end && isfinite(*into);
}

/* Step over any value of an unknown field; 0: it is doubtful. */
static int skip_value(input_t *in, int depth) {
    const char *text;
    Py_ssize_t size;
    number_t number;
    char close;
    skip_space(in);
    if (in->at == in->end)
        return 0;
    switch (*in->at) {
    case '"': in->at++; return take_text(in, &text, &size) == PRESENT;
    case 't': return take_word(in, "true", 4);
    case 'f': return take_word(in, "false", 5);
    case 'n': return take_word(in, "null", 4);
    case '{':
    case '[': break;
    default: return take_number(in, &number) && number.digits <= MOST_DIGITS && !number.exponent;
    }
    if (depth == MOST_DEPTH)
        return 0;
    close = *in->at++ == '{' ? '}' : ']';
    if (take(in, close))
        return 1;
    do {
        if (close == '}' && !(take(in, '"') && take_text(in, &text, &size) == PRESENT && take(in, ':')))
            return 0;
        if (!skip_value(in, depth + 1))
            return 0;
    } while (take(in, ','));
    return take(in, close);
}

/* Read the value of a field; 0: it is doubtful. */
static int take_value(input_t *in, field_t *field) {
    number_t number;
    skip_space(in);
    if (in->at == in->end)
        return 0;
    if (*in->at == 'n') {
        field->state = IS_NULL;
        return field->flags & NULLABLE && take_word(in, "null", 4);
    }
    field->state = PRESENT;
    switch (field->kind) {
    case TEXT:
        if (*in->at != '"')
            return 0;
        in->at++;
        return field->state = take_text(in, &field->text, &field->text_size);
    case FLAG:
        field->whole = *in->at == 't';
        return field->whole ? take_word(in, "true", 4) : take_word(in, "false", 5);
    case WHOLE:
        if (!take_number(in, &number) || !is_whole(&number))
            return 0;
        field->whole = number.negative ? -(int64_t)number.mantissa : (int64_t)number.mantissa;
        return 1;
    default: return take_number(in, &number) && double_of(&number, in->at, &field->number);
    }
}

/* Read a record into the fields; 0: it is doubtful. */
static int take_record(input_t *in, field_t *fields, int count, int strict) {
    int next = 0;
    for (int i = 0; i < count; i++)
        fields[i].state = ABSENT;
    if (!take(in, '{'))
        return 0;
    if (!take(in, '}')) {
        do {
            const char *name;
            Py_ssize_t size;
            int found = count, ascii = 1;
            if (!take(in, '"'))
                return 0;
            if (next < count && in->end - in->at > fields[next].name_size && in->at[fields[next].name_size] == '"' &&
                memcmp(in->at, fields[next].name, (size_t)fields[next].name_size) == 0) {
                name = in->at, size = fields[next].name_size; /* the one that is expected, which needs no look */
                in->at += size + 1;
            } else if (take_text(in, &name, &size) != PRESENT) {
                return 0;
            }
            if (!take(in, ':'))
                return 0;
            for (int i = 0; i < count; i++) { /* most records have their fields in the order of the class */
                int one = next + i < count ? next + i : next + i - count;
                if (fields[one].name_size == size && memcmp(fields[one].name, name, (size_t)size) == 0) {
                    found = one;
                    break;
                }
            }
            if (found < count) {
                if (fields[found].state != ABSENT || !take_value(in, &fields[found]))
                    return 0;
                next = found + 1 < count ? found + 1 : 0;
                continue;
            }
            for (Py_ssize_t i = 0; i < size; i++)
                ascii = ascii && (unsigned char)name[i] < 0x80;
            if (strict || !ascii || !skip_value(in, 0))
                return 0;
        } while (take(in, ','));
        if (!take(in, '}'))
            return 0;
    }
    skip_space(in);
    if (in->at != in->end)
        return 0;
    for (int i = 0; i < count; i++)
        if (fields[i].state == ABSENT && !(fields[i].flags & MAY_LACK))
            return 0;
    return 1;
}

/* Whether the row that was read fits the columns: offsets of texts have 31 bits. */
static int has_room(const field_t *fields, int count) {
    for (int i = 0; i < count; i++)
        if (fields[i].kind == TEXT && fields[i].state >= PRESENT &&
            fields[i].text_size > INT32_MAX - (Py_ssize_t)fields[i].data.size)
            return 0;
    return 1;
}

/* Add the row that was read; -1 with an exception. */
static int add_row(field_t *fields, int count, Py_ssize_t row) {
    for (int i = 0; i < count; i++) {
        field_t *one = &fields[i];
        int there = one->state == PRESENT || one->state == ESCAPED;
        if (there)
            one->valid[row / 8] |= (unsigned char)(1 << row % 8);
        else
            one->nulls++;
        switch (one->kind) {
        case FLAG:
            if (there && one->whole)
                one->data.data[row / 8] |= (char)(1 << row % 8);
            break;
        case WHOLE: ((int64_t *)(void *)one->data.data)[row] = there ? one->whole : 0; break;
        case NUMBER: ((double *)(void *)one->data.data)[row] = there ? one->number : 0; break;
        default:
            if (there) {
                if (grow(&one->data, (size_t)one->text_size) < 0)
                    return -1;
                if (one->state == ESCAPED) {
                    char *into = one->data.data + one->data.size;
                    one->data.size = (size_t)(unescaped(one->text, one->text + one->text_size, into) - one->data.data);
                } else {
                    memcpy(one->data.data + one->data.size, one->text, (size_t)one->text_size);
                    one->data.size += (size_t)one->text_size;
                }
            }
            one->ends[row + 1] = (int32_t)one->data.size;
        }
    }
    return 0;
}

/* Have room for the columns of so many rows; -1 with an exception. */
static int prepare(field_t *field, PyObject *given, Py_ssize_t rows) {
    size_t bits = (size_t)rows / 8 + 1, fixed;
    if (!PyArg_ParseTuple(given, "y#ii:field", &field->name, &field->name_size, &field->kind, &field->flags))
        return -1;
    if (field->kind < WHOLE || field->kind > TEXT) {
        PyErr_Format(PyExc_ValueError, "kind %d", field->kind);
        return -1;
    }
    fixed = field->kind == FLAG ? bits : (size_t)rows * 8 + 8;
    if ((field->valid = PyMem_Calloc(bits, 1)) == NULL ||
        (field->kind == TEXT && (field->ends = PyMem_Calloc((size_t)rows + 1, sizeof(int32_t))) == NULL) ||
        (field->kind != TEXT && (field->data.data = PyMem_Calloc(fixed, 1)) == NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* The buffers of a column: which rows are not null (None: all), where texts end (None: it has no texts), and values. */
static PyObject *buffers_of(const field_t *field, Py_ssize_t rows) {
    Py_ssize_t bits = (rows + 7) / 8;
    Py_ssize_t size = field->kind == TEXT ? (Py_ssize_t)field->data.size : field->kind == FLAG ? bits : rows * 8;
    PyObject *valid, *ends, *data, *made = NULL;
    valid = field->nulls ? PyBytes_FromStringAndSize((char *)field->valid, bits) : Py_NewRef(Py_None);
    ends = field->kind == TEXT ? PyBytes_FromStringAndSize((char *)field->ends, (rows + 1) * 4) : Py_NewRef(Py_None);
    data = PyBytes_FromStringAndSize(field->data.data, size);
    if (valid != NULL && ends != NULL && data != NULL)
        made = PyTuple_Pack(3, valid, ends, data);
    Py_XDECREF(valid);
    Py_XDECREF(ends);
    Py_XDECREF(data);
    return made;
}

/* Read all values; the number of rows, or -1 with an exception. */
static Py_ssize_t read_all(PyObject *values, field_t *fields, int count, int strict, PyObject *doubtful) {
    Py_ssize_t rows = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(values); i++) {
        PyObject *value = PyList_GetItem(values, i), *index;
        char *data;
        Py_ssize_t size;
        if (PyBytes_CheckExact(value)) {
            if (PyBytes_AsStringAndSize(value, &data, &size) < 0)
                return -1;
            input_t in = {data, data + size};
            if (take_record(&in, fields, count, strict) && has_room(fields, count)) {
                if (add_row(fields, count, rows++) < 0)
                    return -1;
                continue;
            }
        }
        index = PyLong_FromSsize_t(i);
        if (index == NULL || PyList_Append(doubtful, index) < 0) {
            Py_XDECREF(index);
            return -1;
        }
        Py_DECREF(index);
    }
    return rows;
}

static PyObject *columns_of(const field_t *fields, int count, Py_ssize_t rows) {
    PyObject *columns = PyList_New(count);
    for (int i = 0; columns != NULL && i < count; i++) {
        PyObject *one = buffers_of(&fields[i], rows);
        if (one == NULL || PyList_SetItem(columns, i, one) < 0)
            Py_CLEAR(columns);
    }
    return columns;
}

PyObject *read_json(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *given, *doubtful = NULL, *columns = NULL, *made = NULL;
    field_t fields[MOST_FIELDS];
    int strict, count;
    Py_ssize_t rows = -1;
    if (!PyArg_ParseTuple(args, "O!O!p:read_json", &PyList_Type, &values, &PyTuple_Type, &given, &strict))
        return NULL;
    if (PyTuple_Size(given) > MOST_FIELDS)
        return PyErr_Format(PyExc_ValueError, "more than %d fields", MOST_FIELDS);
    count = (int)PyTuple_Size(given);
    memset(fields, 0, sizeof(fields));
    for (int i = 0; i < count; i++)
        if (prepare(&fields[i], PyTuple_GetItem(given, i), PyList_Size(values)) < 0)
            goto done;
    if ((doubtful = PyList_New(0)) == NULL || (rows = read_all(values, fields, count, strict, doubtful)) < 0)
        goto done;
    if ((columns = columns_of(fields, count, rows)) != NULL)
        made = Py_BuildValue("nOO", rows, columns, doubtful);
done:
    for (int i = 0; i < count; i++) {
        PyMem_Free(fields[i].data.data);
        PyMem_Free(fields[i].ends);
        PyMem_Free(fields[i].valid);
    }
    Py_XDECREF(doubtful);
    Py_XDECREF(columns);
    return made;
}
