/* MessagePack, as msgspec writes it, into one buffer that is kept warm.

   Each function returns 1, or 0 for what is left to the Python core; 0 may leave an exception, which the caller clears. No function here runs code of the
   program: only exact built-in types are read. So whatever was borrowed before is still there, and the GIL keeps the buffer to one caller. */

#include <endian.h>

#define MAX_DEPTH 16
#define KEPT_BYTES (256 * 1024)
/* A larger buffer is given back after its record. */

static struct {
    unsigned char *bytes;
    Py_ssize_t size, room;
} packer;

static int
grow(Py_ssize_t more)
{
    if (more > PY_SSIZE_T_MAX / 4 || packer.room > PY_SSIZE_T_MAX / 4) {
        return 0;
    }
    Py_ssize_t room = 2 * packer.room + more + 1024;
    unsigned char *grown = PyMem_Realloc(packer.bytes, (size_t)room);
    if (grown == NULL) {
        return 0;
    }
    packer.bytes = grown;
    packer.room = room;
    return 1;
}

static inline int
make_room(Py_ssize_t more)
{
    return packer.room - packer.size >= more || grow(more);
}

/* Write a tag and a number behind it, the highest byte first. Room must be there. */
static inline void
put_number(unsigned char tag, uint64_t number, int width)
{
    unsigned char *at = packer.bytes + packer.size;
    uint64_t turned = htobe64(number << (64 - 8 * width));
    *at = tag;
    memcpy(at + 1, &turned, sizeof turned); /* what is too much is overwritten by what comes next: there is room for nine bytes */
    packer.size += 1 + width;
}

static inline int
pack_byte(unsigned char byte)
{
    if (!make_room(1)) {
        return 0;
    }
    packer.bytes[packer.size++] = byte;
    return 1;
}

static inline int
pack_unsigned(uint64_t number)
{
    if (!make_room(9)) {
        return 0;
    }
    if (number < 0x80) {
        packer.bytes[packer.size++] = (unsigned char)number;
    } else if (number <= 0xff) {
        put_number(0xcc, number, 1);
    } else if (number <= 0xffff) {
        put_number(0xcd, number, 2);
    } else if (number <= 0xffffffff) {
        put_number(0xce, number, 4);
    } else {
        put_number(0xcf, number, 8);
    }
    return 1;
}

static inline int
pack_signed(int64_t number)
{
    if (number >= 0) {
        return pack_unsigned((uint64_t)number);
    }
    if (!make_room(9)) {
        return 0;
    }
    if (number >= -32) {
        packer.bytes[packer.size++] = (unsigned char)number;
    } else if (number >= INT8_MIN) {
        put_number(0xd0, (uint64_t)number, 1);
    } else if (number >= INT16_MIN) {
        put_number(0xd1, (uint64_t)number, 2);
    } else if (number >= INT32_MIN) {
        put_number(0xd2, (uint64_t)number, 4);
    } else {
        put_number(0xd3, (uint64_t)number, 8);
    }
    return 1;
}

static int
pack_integer(PyObject *value)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) {
        return pack_signed(number);
    }
    if (overflow < 0) {
        return 0;
    }
    unsigned long long large = PyLong_AsUnsignedLongLong(value);
    return PyErr_Occurred() == NULL && pack_unsigned(large);
}

static inline int
pack_float(PyObject *value)
{
    uint64_t bits;
    double number = PyFloat_AS_DOUBLE(value);
    memcpy(&bits, &number, sizeof bits);
    if (!make_room(9)) {
        return 0;
    }
    put_number(0xcb, bits, 8);
    return 1;
}

/* The head of something that has a length; `small` is the tag of a short one, up to `most`, `tags` of those with 1, 2 and 4 bytes. */
static inline int
pack_length(Py_ssize_t length, int small, Py_ssize_t most, const unsigned char tags[3])
{
    if ((uint64_t)length > UINT32_MAX || !make_room(9)) {
        return 0;
    }
    if (length <= most) {
        packer.bytes[packer.size++] = (unsigned char)(small | length);
    } else if (length <= 0xff && tags[0]) {
        put_number(tags[0], (uint64_t)length, 1);
    } else if (length <= 0xffff) {
        put_number(tags[1], (uint64_t)length, 2);
    } else {
        put_number(tags[2], (uint64_t)length, 4);
    }
    return 1;
}

static const unsigned char TEXT[] = {0xd9, 0xda, 0xdb}, BINARY[] = {0xc4, 0xc5, 0xc6};
static const unsigned char ARRAY[] = {0, 0xdc, 0xdd}, MAP[] = {0, 0xde, 0xdf};

static inline int
pack_memory(const char *bytes, Py_ssize_t length)
{
    if (!make_room(length)) {
        return 0;
    }
    memcpy(packer.bytes + packer.size, bytes, (size_t)length);
    packer.size += length;
    return 1;
}

/* An exact str; 0 for one with surrogates. */
static inline int
pack_text(PyObject *text)
{
    const char *bytes;
    Py_ssize_t length;
    if (PyUnicode_IS_COMPACT_ASCII(text)) {
        bytes = (const char *)PyUnicode_1BYTE_DATA(text);
        length = PyUnicode_GET_LENGTH(text);
    } else if ((bytes = PyUnicode_AsUTF8AndSize(text, &length)) == NULL) {
        return 0;
    }
    return pack_length(length, 0xa0, 31, TEXT) && pack_memory(bytes, length);
}

static inline int
pack_bytes(PyObject *value)
{
    return pack_length(PyBytes_GET_SIZE(value), 0, -1, BINARY) && pack_memory(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
}

/* A number as `log` takes it. */
static inline int
pack_plain(PyObject *value)
{
    if (PyFloat_CheckExact(value)) {
        return pack_float(value);
    }
    if (PyLong_CheckExact(value)) {
        return pack_integer(value);
    }
    return PyBool_Check(value) && pack_byte(value == Py_True ? 0xc3 : 0xc2);
}

static int pack_value(PyObject *value, int depth);

/* An exact dict with texts as keys, none of them empty in one of numbers, and as values plain numbers, or anything that can be packed where `depth` is not 0. */
static int
pack_map(PyObject *map, int depth)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!pack_length(PyDict_GET_SIZE(map), 0x80, 15, MAP)) {
        return 0;
    }
    while (PyDict_Next(map, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key) || (!depth && PyUnicode_GET_LENGTH(key) == 0) || !pack_text(key) || !(depth ? pack_value(value, depth - 1) : pack_plain(value))) {
            return 0;
        }
    }
    return 1;
}

static int
pack_sequence(PyObject *const *items, Py_ssize_t count, int depth)
{
    if (depth == 0 || !pack_length(count, 0x90, 15, ARRAY)) {
        return 0;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        if (!pack_value(items[at], depth - 1)) {
            return 0;
        }
    }
    return 1;
}

static int
pack_value(PyObject *value, int depth)
{
    if (value == NULL || value == Py_None) {
        return pack_byte(0xc0);
    }
    if (PyUnicode_CheckExact(value)) {
        return pack_text(value);
    }
    if (PyBytes_CheckExact(value)) {
        return pack_bytes(value);
    }
    if (PyDict_CheckExact(value)) {
        return depth > 0 && pack_map(value, depth);
    }
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        return pack_sequence(PySequence_Fast_ITEMS(value), PySequence_Fast_GET_SIZE(value), depth);
    }
    return pack_plain(value);
}

static inline void
begin_record(void)
{
    packer.size = 0;
}

/* What was packed as bytes; NULL without an exception when that was not all of it. */
static inline PyObject *
packed_record(int whole)
{
    PyObject *packed = NULL;
    if (whole) {
        packed = PyBytes_FromStringAndSize((const char *)packer.bytes, packer.size);
    }
    if (packed == NULL) {
        PyErr_Clear();
    }
    if (packer.room > KEPT_BYTES) {
        PyMem_Free(packer.bytes);
        packer.bytes = NULL;
        packer.room = 0;
    }
    return packed;
}
