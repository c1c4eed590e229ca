/* The compiled core of the calls in a training loop: `log`, `step`, `span`, and entering and ending what the last two return.

   It does what every step does: plain numbers, names and texts that the flusher has seen, parents of our own. Everything else, and everything that is
   wrong, it leaves to the Python core before it has changed anything, so the two cannot differ. The state is in structs (states.h) whose fields Python
   reads and writes as attributes.

   Code of the program may run wherever an object is allocated that the garbage collector tracks (finalizers), or is looked up in OpenTelemetry's context
   (keys with an `__eq__`). So what is used behind such a place is owned there, and what was checked before is checked again. Between the last check of a
   recorder and its append nothing such is called. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <time.h>

#ifdef Py_GIL_DISABLED
#error "the compiled core relies on the GIL: without it the Python core is used"
#endif
#ifndef __linux__
#error "the compiled core reads the clocks of Linux: elsewhere the Python core is used"
#endif

#include "packing.h"
#include "states.h"

#define METRIC 0
#define SPAN 1
#define IS_LOCAL 0x101 /* OpenTelemetry's span flags: sampled, and the parent is known to be of this process */
#define LONGEST (64 * 1024)
#define FIRST_STEP (INT64_MIN + 2)

/* A function of the Python core with its compiled form, which calls it for what it leaves to it. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *python;
} Call;

/* What the calls need of the Python modules; `known` is 0 until all of it is there. */
static struct {
    int known;
    PyObject *otel_variable, *current_mark, *span_key, *carried_key, *no_mark, *harmless, *plain_texts, *categories, *step_name, *drop_left;
    PyTypeObject *context_type, *mark_type, *span_type, *step_type, *run_type, *recorder_type;
} here;

static PyObject *word_metrics, *word_step, *word_category, *word_axis, *word_n, *word_name;
static uint64_t next_span_id, drawn[4];

static int64_t
clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int
is_none(PyObject *value)
{
    return value == NULL || value == Py_None;
}

static inline int
is_run(PyObject *value)
{
    return Py_TYPE(value) == here.run_type || PyObject_TypeCheck(value, &RunStateType);
}

static inline int
is_recorder(PyObject *value)
{
    return Py_TYPE(value) == here.recorder_type || PyObject_TypeCheck(value, &RecorderStateType);
}

/* Ids: spans are counted from a random number, traces are drawn by xoshiro256**. */

static PyObject *
next_id(void)
{
    unsigned char bytes[8];
    uint64_t id = next_span_id++;
    for (int at = 7; at >= 0; at--, id >>= 8) {
        bytes[at] = (unsigned char)id;
    }
    return PyBytes_FromStringAndSize((const char *)bytes, sizeof bytes);
}

static inline uint64_t
rotated(uint64_t number, int by)
{
    return (number << by) | (number >> (64 - by));
}

static uint64_t
draw(void)
{
    uint64_t result = rotated(drawn[1] * 5, 7) * 9, shifted = drawn[1] << 17;
    drawn[2] ^= drawn[0];
    drawn[3] ^= drawn[1];
    drawn[1] ^= drawn[2];
    drawn[0] ^= drawn[3];
    drawn[2] ^= shifted;
    drawn[3] = rotated(drawn[3], 45);
    return result;
}

static PyObject *
new_trace_id(void)
{
    uint64_t bits[2] = {draw(), draw()};
    return PyBytes_FromStringAndSize((const char *)bits, sizeof bits);
}

/* Arguments. `out[0]` is self; a name that is not there stays NULL. 0 for what only Python can tell what is wrong with it. */

static int
read_arguments(PyObject *const *args, size_t flags, PyObject *given, PyObject *const *names, int most, PyObject **out)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count < 1 || count > most) {
        return 0;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        out[at] = args[at];
    }
    Py_ssize_t named = given == NULL ? 0 : PyTuple_GET_SIZE(given);
    for (Py_ssize_t at = 0; at < named; at++) {
        PyObject *name = PyTuple_GET_ITEM(given, at);
        int place = 1;
        while (place < most && names[place] != name) {
            place++;
        }
        if (place == most || out[place] != NULL) {
            return 0;
        }
        out[place] = args[count + at];
    }
    return 1;
}

static PyObject *
in_python(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    if (PyErr_Occurred()) {
        PyErr_Clear();
    }
    return PyObject_Vectorcall(((Call *)call)->python, args, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, given);
}

/* The recorder. */

/* The recorder of a run, borrowed; NULL when it is no usual one. */
static inline RecorderState *
recorder_of(RunState *run)
{
    RecorderState *recorder = (RecorderState *)run->recorder;
    if (recorder == NULL || !is_recorder((PyObject *)recorder) || recorder->buffer == NULL ||
        !PyList_CheckExact(recorder->buffer)) {
        return NULL;
    }
    return recorder;
}

/* Append a record, which is released, and let the recorder keep its quota where it is due; NULL with an exception. */
static PyObject *
append(RecorderState *recorder, PyObject *packed)
{
    Py_INCREF(recorder);
    int failed = PyList_Append(recorder->buffer, packed);
    Py_DECREF(packed);
    PyObject *result = NULL;
    if (!failed && PyList_GET_SIZE(recorder->buffer) >= recorder->limit) {
        result = PyObject_CallMethod((PyObject *)recorder, "enforce_quota", NULL);
        Py_XDECREF(result);
        failed = result == NULL;
    }
    Py_DECREF(recorder);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* The step of the calling code, or the last one if that is wanted, a new reference; NULL for none, with an exception where the search failed. */
static PyObject *
mark_of(RunState *run, int or_last)
{
    PyObject *mark;
    if (PyContextVar_Get(here.current_mark, Py_None, &mark) < 0) {
        return NULL;
    }
    if (mark == Py_None) {
        PyObject *other = is_none(run->active_mark) && or_last ? run->last_mark : run->active_mark;
        Py_SETREF(mark, Py_NewRef(other == NULL ? Py_None : other));
    }
    if (mark == Py_None) {
        Py_DECREF(mark);
        return NULL;
    }
    if (Py_TYPE(mark) != here.mark_type || PyTuple_GET_SIZE(mark) != 2) {
        PyErr_SetString(PyExc_TypeError, "not a step");
        Py_DECREF(mark);
        return NULL;
    }
    return mark;
}

static inline int
pack_name(PyObject *text)
{
    return is_none(text) ? pack_byte(0xc0) : PyUnicode_CheckExact(text) && pack_text(text);
}

/* `log` */

static inline int
pack_step(PyObject *step)
{
    return is_none(step) ? pack_byte(0xc0) : PyLong_CheckExact(step) && pack_integer(step);
}

/* Whether a step that was given is an integer in range. */
static int
is_step(PyObject *step)
{
    int overflow;
    if (!PyLong_CheckExact(step)) {
        return 0;
    }
    long long number = PyLong_AsLongLongAndOverflow(step, &overflow);
    return overflow == 0 && number >= FIRST_STEP;
}

static PyObject *
log_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    PyObject *const names[] = {NULL, word_metrics, word_step, word_category, word_axis};
    PyObject *out[5] = {NULL, NULL, NULL, NULL, NULL};
    if (!here.known || !read_arguments(args, flags, given, names, 5, out) || !is_run(out[0]) || out[1] == NULL ||
        !PyDict_CheckExact(out[1])) {
        return in_python(call, args, flags, given);
    }
    RunState *run = (RunState *)out[0];
    PyObject *step = out[2], *category = out[3], *axis = out[4], *mark = NULL;
    if (!is_none(category)) {
        category = PyUnicode_CheckExact(category) ? PyDict_GetItemWithError(here.categories, category) : NULL;
        if (category == NULL) {
            return in_python(call, args, flags, given);
        }
    }
    int counted = 0;
    if (is_none(step)) {
        mark = mark_of(run, 1);
        if (mark != NULL) {
            step = PyTuple_GET_ITEM(mark, 0);
            axis = PyTuple_GET_ITEM(mark, 1);
        } else if (PyErr_Occurred()) {
            return in_python(call, args, flags, given);
        } else if (is_none(run->given)) {
            counted = 1;
        } else {
            step = run->given;
        }
    } else if (!is_step(step)) {
        return in_python(call, args, flags, given);
    }
    RecorderState *recorder = recorder_of(run);
    PyObject *packed = NULL;
    if (recorder != NULL) {
        begin_record();
        packed = packed_record(
            pack_byte(0x96) && pack_byte(METRIC) && pack_signed(clock_ns(CLOCK_REALTIME)) &&
            (counted ? pack_signed(run->counter) : pack_step(step)) && pack_name(axis) && pack_name(category) && pack_map(out[1], 0));
    }
    Py_XDECREF(mark);
    if (packed == NULL) {
        return in_python(call, args, flags, given);
    }
    run->counter += counted;
    PyObject *done = append(recorder, packed);
    if (!is_none(out[2]) && is_none(axis) && run->given != step) {
        Py_XSETREF(run->given, Py_NewRef(step));
    }
    return done;
}

/* OpenTelemetry's context: a dict that is never changed, in a context variable. */

/* The context of the calling code, a new reference; NULL when it is no usual one. */
static PyObject *
context_here(void)
{
    PyObject *context = NULL;
    if (PyContextVar_Get(here.otel_variable, NULL, &context) < 0 || context == NULL) {
        PyErr_Clear();
        return NULL;
    }
    if (Py_TYPE(context) != here.context_type && !PyDict_CheckExact(context)) {
        Py_CLEAR(context);
    }
    return context;
}

/* The entry of a context, a new reference; NULL for none, with an exception where the search failed. */
static inline PyObject *
entry_of(PyObject *context, PyObject *key)
{
    return PyDict_GET_SIZE(context) == 0 ? NULL : Py_XNewRef(PyDict_GetItemWithError(context, key));
}

/* Whether spans opened here get attributes of the context, or that cannot be told: the Python core sees to it. */
static int
is_carrying(PyObject *context)
{
    if (PyDict_GET_SIZE(context) == 0) {
        return 0;
    }
    int found = PyDict_Contains(context, here.carried_key);
    PyErr_Clear();
    return found != 0;
}

static inline int
is_ours(PyObject *span)
{
    return Py_TYPE(span) == here.span_type || Py_TYPE(span) == here.step_type;
}

/* Read the current span of a context: 1 and a new reference, NULL for none; 0 for one that is not plainly ours. */
static int
current_span(PyObject *context, RunState *run, SpanState **found)
{
    PyObject *span = entry_of(context, here.span_key);
    *found = NULL;
    if (is_none(span)) {
        Py_XDECREF(span);
        return !PyErr_Occurred() && is_none(run->above);
    }
    SpanState *ours = (SpanState *)span;
    if (!is_ours(span) || !is_none(ours->left) || !is_none(ours->origin) || is_none(ours->trace) || is_none(ours->id)) {
        Py_DECREF(span);
        return 0;
    }
    *found = ours;
    return 1;
}

/* Make a span current; its token, or NULL with an exception. */
static PyObject *
attach(PyObject *context, PyObject *span)
{
    PyObject *inner = PyDict_Type.tp_new(here.context_type, no_items, NULL), *token = NULL;
    if (inner == NULL) {
        return NULL;
    }
    if ((PyDict_GET_SIZE(context) == 0 || PyDict_Merge(inner, context, 1) == 0) && PyDict_SetItem(inner, here.span_key, span) == 0) {
        token = PyContextVar_Set(here.otel_variable, inner);
    }
    Py_DECREF(inner);
    return token;
}

/* Reset a variable by a token: 1, or 0 where it was set in another context or before; -1 with an exception. */
static int
reset(PyObject *variable, PyObject *token)
{
    if (PyContextVar_Reset(variable, token) == 0) {
        return 1;
    }
    if (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

/* Opening. */

/* Give a new span its ids, its times and its place among the open ones; it is released where that fails. */
static PyObject *
begin_span(SpanState *span, RunState *run)
{
    span->run = Py_NewRef((PyObject *)run);
    span->id = next_id();
    if (span->trace == NULL) {
        span->trace = new_trace_id();
    }
    span->start = clock_ns(CLOCK_REALTIME);
    span->began = clock_ns(CLOCK_MONOTONIC);
    int failed = span->id == NULL || span->trace == NULL;
    if (!failed) {
        PyObject *open = Py_XNewRef(run->open_spans);
        failed = open == NULL || PyDict_SetItem(open, span->id, (PyObject *)span) < 0;
        if (failed && !PyErr_Occurred()) {
            PyErr_SetString(PyExc_AttributeError, "open_spans");
        }
        Py_XDECREF(open);
    }
    if (failed) {
        Py_CLEAR(span);
    }
    return (PyObject *)span;
}

/* Whether an attribute can be recorded as it is, as `is_known` has it. */
static int
is_known(PyObject *key, PyObject *value)
{
    if (!PyUnicode_CheckExact(key) || PySet_Contains(here.harmless, key) != 1) {
        return 0;
    }
    if (PyUnicode_CheckExact(value)) {
        return PySet_Contains(here.plain_texts, value) == 1;
    }
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value);
}

/* The named arguments as attributes; NULL, with an exception where memory was lacking, for others than known ones. */
static PyObject *
known_attributes(PyObject *const *values, PyObject *given)
{
    Py_ssize_t count = given == NULL ? 0 : PyTuple_GET_SIZE(given);
    for (Py_ssize_t at = 0; at < count; at++) {
        if (!is_known(PyTuple_GET_ITEM(given, at), values[at])) {
            return NULL;
        }
    }
    PyObject *attrs = PyDict_New();
    for (Py_ssize_t at = 0; attrs != NULL && at < count; at++) {
        if (PyDict_SetItem(attrs, PyTuple_GET_ITEM(given, at), values[at]) < 0) {
            Py_CLEAR(attrs);
        }
    }
    return attrs;
}

static PyObject *
open_span_below(PyObject *context, RunState *run, PyObject *name, PyObject *const *values, PyObject *given)
{
    SpanState *above, *span = NULL;
    if (is_carrying(context) || !current_span(context, run, &above)) {
        return NULL;
    }
    PyObject *attrs = known_attributes(values, given), *mark = attrs == NULL ? NULL : mark_of(run, 0);
    if (attrs != NULL && !PyErr_Occurred()) {
        span = (SpanState *)new_span(here.span_type, NULL, NULL);
    }
    if (span != NULL) {
        span->name = Py_NewRef(name);
        span->attrs = Py_NewRef(attrs);
        span->mark = Py_NewRef(mark == NULL ? here.no_mark : mark);
        if (above != NULL) {
            span->trace = Py_XNewRef(above->trace);
            span->parent = Py_XNewRef(above->id);
        }
        span = (SpanState *)begin_span(span, run);
    }
    Py_XDECREF(mark);
    Py_XDECREF(attrs);
    Py_XDECREF((PyObject *)above);
    return (PyObject *)span;
}

static PyObject *
span_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    PyObject *span = NULL, *context;
    if (here.known && PyVectorcall_NARGS(flags) == 2 && is_run(args[0]) && PyUnicode_CheckExact(args[1]) &&
        PySet_Contains(here.plain_texts, args[1]) == 1 && (context = context_here()) != NULL) {
        span = open_span_below(context, (RunState *)args[0], args[1], args + 2, given);
        Py_DECREF(context);
    }
    return span == NULL ? in_python(call, args, flags, given) : span;
}

/* The links of a step, to the run and to the span that is current. */
static PyObject *
links_of(RunState *run, SpanState *above)
{
    if (is_none(run->link)) {
        return NULL;
    }
    if (above == NULL) {
        return PyTuple_Pack(1, run->link);
    }
    PyObject *links = NULL, *none = PyDict_New();
    PyObject *link = none == NULL ? NULL : PyTuple_Pack(3, above->trace, above->id, none);
    if (link != NULL && !is_none(run->link)) {
        links = PyTuple_Pack(2, run->link, link);
    }
    Py_XDECREF(link);
    Py_XDECREF(none);
    return links;
}

static PyObject *
new_mark(PyObject *step, PyObject *axis)
{
    PyObject *fields = PyTuple_Pack(2, step, axis), *mark = NULL;
    PyObject *arguments = fields == NULL ? NULL : PyTuple_Pack(1, fields);
    if (arguments != NULL) {
        mark = PyTuple_Type.tp_new(here.mark_type, arguments, NULL);
    }
    Py_XDECREF(arguments);
    Py_XDECREF(fields);
    return mark;
}

static PyObject *
open_step_below(PyObject *context, RunState *run, PyObject *number, PyObject *axis)
{
    SpanState *above, *step = NULL;
    if (is_carrying(context) || !current_span(context, run, &above)) {
        return NULL;
    }
    PyObject *links = links_of(run, above), *attrs = links == NULL ? NULL : PyDict_New();
    PyObject *mark = attrs == NULL ? NULL : new_mark(number, axis);
    if (mark != NULL && (step = (SpanState *)new_span(here.step_type, NULL, NULL)) != NULL) {
        step->name = Py_NewRef(here.step_name);
        step->attrs = Py_NewRef(attrs);
        step->mark = Py_NewRef(mark);
        Py_SETREF(step->links, Py_NewRef(links));
        step = (SpanState *)begin_span(step, run);
    }
    Py_XDECREF(mark);
    Py_XDECREF(attrs);
    Py_XDECREF(links);
    Py_XDECREF((PyObject *)above);
    return (PyObject *)step;
}

static PyObject *
step_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    PyObject *const names[] = {NULL, word_n, word_name};
    PyObject *out[3] = {NULL, NULL, NULL}, *step = NULL, *context;
    if (here.known && read_arguments(args, flags, given, names, 3, out) && is_run(out[0]) && out[1] != NULL &&
        is_step(out[1]) && (out[2] == NULL || PyUnicode_CheckExact(out[2])) && (context = context_here()) != NULL) {
        PyObject *axis = out[2] == NULL || PyUnicode_CompareWithASCIIString(out[2], "step") == 0 ? Py_None : out[2];
        step = open_step_below(context, (RunState *)out[0], out[1], axis);
        Py_DECREF(context);
    }
    return step == NULL ? in_python(call, args, flags, given) : step;
}

/* Entering. */

static PyObject *
enter_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    PyObject *context;
    if (!here.known || PyVectorcall_NARGS(flags) != 1 || given != NULL || Py_TYPE(args[0]) != here.span_type) {
        return in_python(call, args, flags, given);
    }
    SpanState *span = (SpanState *)args[0];
    if (!span->joins || !is_none(span->token)) {
        return Py_NewRef(args[0]);
    }
    if ((context = context_here()) == NULL) {
        return in_python(call, args, flags, given);
    }
    PyObject *token = attach(context, args[0]);
    Py_DECREF(context);
    if (token == NULL) {
        return NULL;
    }
    Py_XSETREF(span->token, token);
    return Py_NewRef(args[0]);
}

/* The run of a step whose lists of steps are usual ones, borrowed; NULL otherwise. */
static RunState *
run_of(SpanState *span)
{
    RunState *run = (RunState *)span->run;
    if (run == NULL || !is_run((PyObject *)run) || run->open_steps == NULL || !PyList_CheckExact(run->open_steps) ||
        run->left_steps == NULL || !PyDict_CheckExact(run->left_steps) || run->open_spans == NULL || !PyDict_CheckExact(run->open_spans)) {
        return NULL;
    }
    return run;
}

static PyObject *
enter_step_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    SpanState *step;
    RunState *run;
    PyObject *context, *token = NULL, *mark_token = NULL;
    if (!here.known || PyVectorcall_NARGS(flags) != 1 || given != NULL || Py_TYPE(step = (SpanState *)args[0]) != here.step_type || (run = run_of(step)) == NULL ||
        PyDict_GET_SIZE(run->left_steps) != 0 || is_none(step->mark) || (context = context_here()) == NULL) {
        return in_python(call, args, flags, given);
    }
    Py_INCREF(run);
    PyObject *mark = Py_NewRef(step->mark);
    mark_token = PyContextVar_Set(here.current_mark, mark);
    if (mark_token != NULL) {
        Py_XSETREF(step->step_token, mark_token);
        if (run->open_steps != NULL && PyList_Append(run->open_steps, mark) == 0) {
            Py_XSETREF(run->active_mark, Py_NewRef(mark));
            Py_XSETREF(run->last_mark, Py_NewRef(mark));
            token = attach(context, args[0]);
        }
    }
    if (token != NULL) {
        Py_XSETREF(step->token, token);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_AttributeError, "open_steps");
    }
    Py_DECREF(mark);
    Py_DECREF(run);
    Py_DECREF(context);
    return token == NULL ? NULL : Py_NewRef(args[0]);
}

/* Ending. */

static int
pack_span(SpanState *span, int64_t duration)
{
    PyObject *mark = span->mark;
    if (Py_TYPE(mark) != here.mark_type || PyTuple_GET_SIZE(mark) != 2 || is_none(span->attrs) || !PyDict_CheckExact(span->attrs)) {
        return 0;
    }
    int linked = PySequence_Fast_GET_SIZE(span->links) != 0;
    return (linked ? pack_byte(0xdc) && pack_byte(0) && pack_byte(17) : pack_byte(0x9d)) && pack_byte(SPAN) && pack_signed(span->start) &&
           pack_signed(duration) && pack_step(PyTuple_GET_ITEM(mark, 0)) && pack_name(PyTuple_GET_ITEM(mark, 1)) && pack_bytes(span->trace) &&
           pack_bytes(span->id) && pack_value(span->parent, 0) && pack_name(span->name) && pack_byte(1) && pack_byte(0) && pack_byte(0xa0) &&
           pack_map(span->attrs, MAX_DEPTH) &&
           (!linked || (pack_byte(0x90) && pack_value(span->links, MAX_DEPTH) && pack_byte(0xa0) && pack_unsigned(IS_LOCAL)));
}

/* End a span: None, or NULL with an exception; NULL without one when nothing was done and the Python core has to do it. */
static PyObject *
end_span(SpanState *span)
{
    if (span->ended) {
        return Py_NewRef(Py_None);
    }
    RunState *run = run_of(span);
    RecorderState *recorder = run == NULL ? NULL : recorder_of(run);
    if (recorder == NULL || !span->usual || is_none(span->mark) || is_none(span->name) || is_none(span->links) ||
        !(PyTuple_CheckExact(span->links) || PyList_CheckExact(span->links)) || span->trace == NULL || !PyBytes_CheckExact(span->trace) ||
        span->id == NULL || !PyBytes_CheckExact(span->id)) {
        return NULL;
    }
    int64_t duration = clock_ns(CLOCK_MONOTONIC) - span->began;
    begin_record();
    PyObject *packed = packed_record(pack_span(span, duration) && packer.size <= LONGEST);
    if (packed == NULL) {
        return NULL;
    }
    span->duration = duration;
    span->ended = 1;
    Py_INCREF(recorder);
    PyObject *open = Py_NewRef(run->open_spans), *id = Py_NewRef(span->id);
    if (PyDict_DelItem(open, id) < 0) {
        PyErr_Clear(); /* it was taken out before */
    }
    Py_DECREF(open);
    Py_DECREF(id);
    PyObject *done = NULL;
    if (recorder->buffer != NULL && PyList_CheckExact(recorder->buffer)) {
        done = append(recorder, packed);
    } else {
        Py_DECREF(packed);
        PyErr_SetString(PyExc_AttributeError, "buffer");
    }
    Py_DECREF(recorder);
    return done;
}

static PyObject *
end_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    PyObject *done = NULL;
    if (here.known && PyVectorcall_NARGS(flags) == 1 && given == NULL && PyObject_TypeCheck(args[0], &SpanStateType)) {
        done = end_span((SpanState *)args[0]);
        if (done == NULL && PyErr_Occurred()) {
            return NULL;
        }
    }
    return done == NULL ? in_python(call, args, flags, given) : done;
}

/* End a span that is exited, in either core. */
static PyObject *
end_exited(PyObject *self)
{
    PyObject *done = end_span((SpanState *)self);
    return done == NULL && !PyErr_Occurred() ? PyObject_CallMethod(self, "end", NULL) : done;
}

/* Exiting. */

/* Make the span before current again, where this one is: 0, or -1 with an exception. */
static int
detach(SpanState *span, PyObject *context)
{
    PyObject *token = span->token;
    span->token = NULL;
    PyObject *current = entry_of(context, here.span_key);
    int found = PyErr_Occurred() ? -1 : current == (PyObject *)span;
    Py_XDECREF(current);
    if (found == 1) {
        found = reset(here.otel_variable, token);
    }
    if (found == 0) {
        Py_XSETREF(span->left, Py_NewRef(token));
    }
    Py_DECREF(token);
    return found < 0 ? -1 : 0;
}

/* Exit a span of ours without an exception; NULL without one of ours when nothing was done. */
static PyObject *
exit_span(SpanState *span)
{
    if (!is_none(span->token)) {
        PyObject *context = context_here();
        if (context == NULL) {
            return NULL;
        }
        int failed = is_none(span->token) ? 0 : detach(span, context);
        Py_DECREF(context);
        if (failed) {
            return NULL;
        }
    }
    return end_exited((PyObject *)span);
}

static inline int
is_plain_exit(PyObject *const *args, size_t flags, PyObject *given)
{
    return here.known && PyVectorcall_NARGS(flags) == 4 && given == NULL && args[2] == Py_None;
}

static PyObject *
exit_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    PyObject *done = NULL;
    if (is_plain_exit(args, flags, given) && is_ours(args[0])) {
        done = exit_span((SpanState *)args[0]);
        if (done == NULL && PyErr_Occurred()) {
            return NULL;
        }
    }
    return done == NULL ? in_python(call, args, flags, given) : done;
}

/* Remove a step from the open ones, also an equal one of another thread, as `list.remove` does: 0, or -1 with an exception. */
static int
close_mark(RunState *run, PyObject *mark)
{
    PyObject *open = Py_NewRef(run->open_steps), *last;
    int failed = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(open); at++) {
        PyObject *each = Py_NewRef(PyList_GET_ITEM(open, at));
        int equal = each == mark ? 1 : PyObject_RichCompareBool(each, mark, Py_EQ);
        Py_DECREF(each);
        if (equal != 0) {
            failed = equal < 0 || PyList_SetSlice(open, at, at + 1, NULL) < 0;
            break;
        }
    }
    if (!failed) {
        Py_ssize_t count = PyList_GET_SIZE(open);
        last = count == 0 ? Py_None : PyList_GET_ITEM(open, count - 1);
        Py_XSETREF(run->active_mark, Py_NewRef(last));
    }
    Py_DECREF(open);
    return failed ? -1 : 0;
}

/* Note that a step was exited where it is not current, with the token that resets it later: 0, or -1 with an exception. */
static int
leave_step(RunState *run, SpanState *step, PyObject *mark)
{
    PyObject *token = is_none(step->step_token) ? Py_None : step->step_token;
    PyObject *number = PyLong_FromVoidPtr(mark), *noted = PyTuple_Pack(2, mark, token);
    int failed = number == NULL || noted == NULL || run->left_steps == NULL || PyDict_SetItem(run->left_steps, number, noted) < 0;
    Py_XDECREF(number);
    Py_XDECREF(noted);
    return failed ? -1 : 0;
}

/* Make the step before current again: 1, 0 for a context that inherited the step and keeps it, or -1 with an exception. */
static int
exit_mark(RunState *run, SpanState *step, PyObject *mark)
{
    PyObject *current;
    if (PyContextVar_Get(here.current_mark, Py_None, &current) < 0) {
        return -1;
    }
    int is_current = current == mark;
    Py_DECREF(current);
    if (!is_current) {
        return leave_step(run, step, mark) < 0 ? -1 : 1;
    }
    PyObject *token = Py_XNewRef(step->step_token);
    int done = token == NULL ? 0 : reset(here.current_mark, token);
    Py_XDECREF(token);
    return done;
}

static PyObject *
exit_step(SpanState *step)
{
    RunState *run = run_of(step);
    if (run == NULL || is_none(step->mark)) {
        return NULL;
    }
    int was_entered = !is_none(step->token);
    PyObject *done = exit_span(step);
    if (done == NULL || !was_entered) {
        return done;
    }
    if ((run = run_of(step)) == NULL || is_none(step->mark)) {
        return done;
    }
    Py_INCREF(run);
    PyObject *mark = Py_NewRef(step->mark);
    int settled = close_mark(run, mark) < 0 ? -1 : exit_mark(run, step, mark);
    if (settled > 0 && run->left_steps != NULL && PyDict_CheckExact(run->left_steps) && PyDict_GET_SIZE(run->left_steps) != 0) {
        PyObject *dropped = PyObject_CallOneArg(here.drop_left, (PyObject *)run);
        settled = dropped == NULL ? -1 : 1;
        Py_XDECREF(dropped);
    }
    if (settled < 0) {
        Py_CLEAR(done);
    }
    Py_DECREF(mark);
    Py_DECREF(run);
    return done;
}

static PyObject *
exit_step_call(PyObject *call, PyObject *const *args, size_t flags, PyObject *given)
{
    PyObject *done = NULL;
    if (is_plain_exit(args, flags, given) && Py_TYPE(args[0]) == here.step_type) {
        done = exit_step((SpanState *)args[0]);
        if (done == NULL && PyErr_Occurred()) {
            return NULL;
        }
    }
    return done == NULL ? in_python(call, args, flags, given) : done;
}

/* The functions of the Python core with a compiled form. */

static const struct {
    const char *name;
    vectorcallfunc call;
} calls[] = {
    {"Run.log", log_call},
    {"Run.step", step_call},
    {"open_span", span_call},
    {"Span.__enter__", enter_call},
    {"Span.__exit__", exit_call},
    {"Span.end", end_call},
    {"StepSpan.__enter__", enter_step_call},
    {"StepSpan.__exit__", exit_step_call},
};

static int
call_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Call *)self)->python);
    return 0;
}

static int
call_clear(PyObject *self)
{
    Py_CLEAR(((Call *)self)->python);
    return 0;
}

static void
call_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    call_clear(self);
    PyObject_GC_Del(self);
}

static PyObject *
call_bind(PyObject *self, PyObject *owner, PyObject *Py_UNUSED(type))
{
    return is_none(owner) ? Py_NewRef(self) : PyMethod_New(self, owner);
}

/* Name, annotations and the like are those of the function. */
static PyObject *
call_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(((Call *)self)->python, name);
    }
    return found;
}

static PyObject *
call_doc(PyObject *self, void *Py_UNUSED(closure))
{
    return PyObject_GetAttrString(((Call *)self)->python, "__doc__");
}

static PyObject *
call_wrapped(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(((Call *)self)->python);
}

/* Pickled by its name, as a function is. */
static PyObject *
call_reduce(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_GetAttrString(((Call *)self)->python, "__qualname__");
}

static PyGetSetDef call_getset[] = {
    {"__doc__", call_doc, NULL, NULL, NULL},
    {"__wrapped__", call_wrapped, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef call_methods[] = {
    {"__reduce__", call_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stepscope.sdk.loop_calls.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Call, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = call_traverse,
    .tp_clear = call_clear,
    .tp_dealloc = call_dealloc,
    .tp_descr_get = call_bind,
    .tp_getattro = call_attribute,
    .tp_getset = call_getset,
    .tp_methods = call_methods,
};

/* The module. */

static PyObject *
compiled(PyObject *Py_UNUSED(module), PyObject *python)
{
    PyObject *name = PyObject_GetAttrString(python, "__qualname__");
    if (name == NULL || !PyUnicode_Check(name)) {
        Py_XDECREF(name);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "not a function");
    }
    for (size_t at = 0; at < Py_ARRAY_LENGTH(calls); at++) {
        if (PyUnicode_CompareWithASCIIString(name, calls[at].name) != 0) {
            continue;
        }
        Py_DECREF(name);
        Call *made = PyObject_GC_New(Call, &CallType);
        if (made != NULL) {
            made->call = calls[at].call;
            made->python = Py_NewRef(python);
            PyObject_GC_Track(made);
        }
        return (PyObject *)made;
    }
    PyErr_Format(PyExc_ValueError, "%R has no compiled form", name);
    Py_DECREF(name);
    return NULL;
}

static PyObject *
seed(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer random;
    unsigned long long first;
    if (!PyArg_ParseTuple(args, "y*K", &random, &first)) {
        return NULL;
    }
    int fits = random.len == sizeof drawn;
    if (fits) {
        memcpy(drawn, random.buf, sizeof drawn);
        drawn[0] |= 1; /* all zeros would stay zeros */
        next_span_id = first;
    }
    PyBuffer_Release(&random);
    return fits ? Py_NewRef(Py_None) : PyErr_Format(PyExc_ValueError, "%zd random bytes are needed", sizeof drawn);
}

static int
is_type(PyObject *given, PyTypeObject *base)
{
    return PyType_Check(given) && PyType_IsSubtype((PyTypeObject *)given, base);
}

static PyObject *
use(PyObject *Py_UNUSED(module), PyObject *args, PyObject *given)
{
    static char *words[] = {"otel_variable", "current_mark", "span_key", "carried_key", "no_mark", "harmless", "plain_texts", "categories",
                            "step_name", "drop_left", "context_type", "mark_type", "span_type", "step_type", "run_type", "recorder_type", NULL};
    PyObject *found[16];
    if (!PyArg_ParseTupleAndKeywords(args, given, "$OOUUOO!O!O!UOOOOOOO:use", words, &found[0], &found[1], &found[2], &found[3], &found[4],
                                     &PySet_Type, &found[5], &PySet_Type, &found[6], &PyDict_Type, &found[7], &found[8], &found[9], &found[10],
                                     &found[11], &found[12], &found[13], &found[14], &found[15])) {
        return NULL;
    }
    int fits = PyContextVar_CheckExact(found[0]) && PyContextVar_CheckExact(found[1]) && is_type(found[10], &PyDict_Type) &&
               ((PyTypeObject *)found[10])->tp_new == PyDict_Type.tp_new && is_type(found[11], &PyTuple_Type) &&
               is_type(found[12], &SpanStateType) && is_type(found[13], &SpanStateType) && is_type(found[14], &RunStateType) &&
               is_type(found[15], &RecorderStateType);
    if (!fits || here.known) {
        Py_RETURN_FALSE;
    }
    PyObject **places[] = {&here.otel_variable, &here.current_mark, &here.span_key, &here.carried_key, &here.no_mark, &here.harmless,
                           &here.plain_texts, &here.categories, &here.step_name, &here.drop_left};
    for (size_t at = 0; at < Py_ARRAY_LENGTH(places); at++) {
        *places[at] = Py_NewRef(found[at]);
    }
    here.context_type = (PyTypeObject *)Py_NewRef(found[10]);
    here.mark_type = (PyTypeObject *)Py_NewRef(found[11]);
    here.span_type = (PyTypeObject *)Py_NewRef(found[12]);
    here.step_type = (PyTypeObject *)Py_NewRef(found[13]);
    here.run_type = (PyTypeObject *)Py_NewRef(found[14]);
    here.recorder_type = (PyTypeObject *)Py_NewRef(found[15]);
    here.known = 1;
    Py_RETURN_TRUE;
}

static PyObject *
in_use(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(here.known);
}

static int
fill_module(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "the compiled core serves the main interpreter alone");
        return -1;
    }
    struct {
        PyObject **place;
        const char *text;
    } words[] = {{&word_metrics, "metrics"}, {&word_step, "step"}, {&word_category, "category"}, {&word_axis, "axis"}, {&word_n, "n"}, {&word_name, "name"}};
    for (size_t at = 0; at < Py_ARRAY_LENGTH(words); at++) {
        if (*words[at].place == NULL && (*words[at].place = PyUnicode_InternFromString(words[at].text)) == NULL) {
            return -1;
        }
    }
    if (no_items == NULL && (no_items = PyTuple_New(0)) == NULL) {
        return -1;
    }
    return PyType_Ready(&CallType) < 0 || PyModule_AddType(module, &RecorderStateType) < 0 || PyModule_AddType(module, &RunStateType) < 0 ||
                   PyModule_AddType(module, &SpanStateType) < 0
               ? -1
               : 0;
}

static PyMethodDef functions[] = {
    {"compiled", compiled, METH_O, "Return the compiled form of a function of the Python core, which calls it for all but the usual."},
    {"in_use", in_use, METH_NOARGS, "Return whether `use` was given what the calls know."},
    {"seed", seed, METH_VARARGS, "Set what ids are made from: 32 random bytes, and the first id of a span."},
    {"use", (PyCFunction)(void (*)(void))use, METH_VARARGS | METH_KEYWORDS,
     "Take what the calls need of the Python modules, and begin; False, and the Python core goes on, if it is not what they know."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill_module},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "loop_calls",
    .m_doc = "The compiled core of the calls in a training loop.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit_loop_calls(void)
{
    return PyModuleDef_Init(&definition);
}
