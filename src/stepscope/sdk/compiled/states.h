/* What the calls read and write of a run, its recorder and its spans: the same attributes as in core.py, in structs. An attribute that was never set is None. */

typedef struct {
    PyObject_HEAD
    PyObject *buffer;
    Py_ssize_t limit;
} RecorderState;

typedef struct {
    PyObject_HEAD
    PyObject *recorder, *active_mark, *last_mark, *given, *open_steps, *left_steps, *open_spans, *above, *link;
    long long counter;
} RunState;

typedef struct {
    PyObject_HEAD
    PyObject *run, *name, *attrs, *id, *trace, *parent, *mark, *links, *token, *step_token, *left, *origin;
    long long start, began, duration;
    char ended, usual, unmasked, joins, special, announced;
} SpanState;

static PyObject *no_items; /* the empty tuple */

#define OBJECTS(state, first, last) \
    PyObject **first_object = &((state *)self)->first, **last_object = &((state *)self)->last

#define GARBAGE(state, first, last)                                      \
    static int state##_traverse(PyObject *self, visitproc visit, void *arg) \
    {                                                                    \
        OBJECTS(state, first, last);                                     \
        for (PyObject **each = first_object; each <= last_object; each++) { \
            Py_VISIT(*each);                                             \
        }                                                                \
        return 0;                                                        \
    }                                                                    \
    static int state##_clear(PyObject *self)                             \
    {                                                                    \
        OBJECTS(state, first, last);                                     \
        for (PyObject **each = first_object; each <= last_object; each++) { \
            Py_CLEAR(*each);                                             \
        }                                                                \
        return 0;                                                        \
    }                                                                    \
    static void state##_dealloc(PyObject *self)                          \
    {                                                                    \
        PyObject_GC_UnTrack(self);                                       \
        state##_clear(self);                                             \
        Py_TYPE(self)->tp_free(self);                                    \
    }

GARBAGE(RecorderState, buffer, buffer)
GARBAGE(RunState, recorder, link)
GARBAGE(SpanState, run, origin)

#define OBJECT(state, field, name) {name, T_OBJECT, offsetof(state, field), 0, NULL}
#define FLAG(field) {#field, T_BOOL, offsetof(SpanState, field), 0, NULL}
#define LAST_MEMBER {NULL, 0, 0, 0, NULL}

static PyMemberDef recorder_members[] = {
    OBJECT(RecorderState, buffer, "buffer"),
    {"limit", T_PYSSIZET, offsetof(RecorderState, limit), 0, NULL},
    LAST_MEMBER,
};

static PyMemberDef run_members[] = {
    OBJECT(RunState, recorder, "recorder"),
    OBJECT(RunState, active_mark, "active_mark"),
    OBJECT(RunState, last_mark, "last_mark"),
    OBJECT(RunState, given, "_given"),
    OBJECT(RunState, open_steps, "open_steps"),
    OBJECT(RunState, left_steps, "left_steps"),
    OBJECT(RunState, open_spans, "open_spans"),
    OBJECT(RunState, above, "above"),
    OBJECT(RunState, link, "link"),
    {"_counter", T_LONGLONG, offsetof(RunState, counter), 0, NULL},
    LAST_MEMBER,
};

static PyMemberDef span_members[] = {
    OBJECT(SpanState, run, "_run"),
    OBJECT(SpanState, name, "name"),
    OBJECT(SpanState, attrs, "_attrs"),
    OBJECT(SpanState, id, "id"),
    OBJECT(SpanState, trace, "trace"),
    OBJECT(SpanState, parent, "parent"),
    OBJECT(SpanState, mark, "mark"),
    OBJECT(SpanState, links, "_links"),
    OBJECT(SpanState, token, "_token"),
    OBJECT(SpanState, step_token, "_step_token"),
    OBJECT(SpanState, left, "left"),
    OBJECT(SpanState, origin, "_origin"),
    {"start", T_LONGLONG, offsetof(SpanState, start), 0, NULL},
    {"_began", T_LONGLONG, offsetof(SpanState, began), 0, NULL},
    FLAG(usual),
    FLAG(unmasked),
    FLAG(joins),
    FLAG(special),
    FLAG(announced),
    LAST_MEMBER,
};

static PyObject *
get_duration(PyObject *self, void *Py_UNUSED(closure))
{
    SpanState *span = (SpanState *)self;
    return span->ended ? PyLong_FromLongLong(span->duration) : Py_NewRef(Py_None);
}

static int
set_duration(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    SpanState *span = (SpanState *)self;
    if (value == NULL || value == Py_None) {
        span->ended = 0;
        return 0;
    }
    long long duration = PyLong_AsLongLong(value);
    if (duration == -1 && PyErr_Occurred()) {
        return -1;
    }
    span->duration = duration;
    span->ended = 1;
    return 0;
}

static PyGetSetDef span_getset[] = {
    {"duration", get_duration, set_duration, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *
new_state(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(given))
{
    return type->tp_alloc(type, 0);
}

static PyObject *
new_span(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(given))
{
    SpanState *span = (SpanState *)type->tp_alloc(type, 0);
    if (span != NULL) {
        span->usual = span->joins = 1;
        span->links = Py_NewRef(no_items);
    }
    return (PyObject *)span;
}

#define STATE_TYPE(state, new, ...)                                                       \
    static PyTypeObject state##Type = {                                                   \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stepscope.sdk.loop_calls." #state,      \
        .tp_basicsize = sizeof(state),                                                    \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,        \
        .tp_new = new,                                                                    \
        .tp_traverse = state##_traverse,                                                  \
        .tp_clear = state##_clear,                                                        \
        .tp_dealloc = state##_dealloc,                                                    \
        __VA_ARGS__                                                                       \
    }

STATE_TYPE(RecorderState, new_state, .tp_members = recorder_members);
STATE_TYPE(RunState, new_state, .tp_members = run_members);
STATE_TYPE(SpanState, new_span, .tp_members = span_members, .tp_getset = span_getset);
