/* options.c - the options of layers as Python objects: net.fc.in_features, and what repr() shows. */
#include "object.h"

#include <math.h>
#include <string.h>

static PyObject *ints_object(const int64_t *at, int count) {
    if (count > 0 && (at[0] == GD_UNSET || at[0] == GD_ANY)) return Py_NewRef(Py_None);
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; i < count && tuple; i++) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(at[i]));
    return tuple;
}

/* A word among those of an option, "mean sum none". */
static PyObject *word_object(const char *words, gd_word value) {
    char word[64];
    while (*words) {
        const size_t n = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        if (gd_word_of(word) == value) return PyUnicode_FromString(word);
        words += n + strspn(words + n, " ");
    }
    return Py_NewRef(Py_None);
}

static PyObject *number_object(double value) {
    return isnan(value) ? Py_NewRef(Py_None) : PyFloat_FromDouble(value);
}

PyObject *gdpy_option_object(const gdpy_param *p, const void *frame) {
    const void *at = (const char *)frame + p->offset;
    switch ((gdpy_kind)p->kind) {
    case GDPY_INT: {
        const int64_t value = *(const int64_t *)at;
        if (value == GD_UNSET || value == GD_ANY) return Py_NewRef(Py_None);
        return PyLong_FromLongLong(value);
    }
    case GDPY_FLOAT: return number_object(*(const double *)at);
    case GDPY_BOOL: return PyBool_FromLong(*(const bool *)at);
    case GDPY_INTS: {
        PyObject *word = NULL; /* padding="same" */
        if (p->word_offset)
            word = word_object(p->words, *(const gd_word *)((const char *)frame + p->word_offset));
        if (word && PyUnicode_CompareWithASCIIString(word, "explicit") != 0) return word;
        Py_XDECREF(word);
        return ints_object(at, p->count);
    }
    case GDPY_SHAPE: {
        const gd_shape *shape = at;
        return shape->rank < 0 ? Py_NewRef(Py_None) : ints_object(shape->at, shape->rank);
    }
    case GDPY_WORD: return word_object(p->words, *(const gd_word *)at);
    case GDPY_NUMBER: {
        const gd_number *n = at;
        const bool whole = n->value == (double)n->integer;
        return whole ? PyLong_FromLongLong(n->integer) : number_object(n->value);
    }
    case GDPY_STRING: {
        const char *text = *(const char *const *)at;
        return text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
    }
    default: return Py_NewRef(Py_None); /* no option */
    }
}

static const gdpy_constructor *constructor_of(const char *layer) {
    const gdpy_constructor *c = gdpy_constructors;
    while (layer && c->kind && (strcmp(c->kind, "layer") || strcmp(c->record, layer))) c++;
    return c;
}

/* _module_set_number(self, record, name, value): an option that is a real number. False: it is none. */
PyObject *gdpy_module_set_number(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *self;
    const char *record, *name;
    double value;
    if (!PyArg_ParseTuple(args, "Ossd", &self, &record, &name, &value)) return NULL;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    const gdpy_constructor *c = m ? constructor_of(record) : NULL;
    if (!c) return NULL;
    for (int i = 0; c->kind && i < c->function->count; i++) {
        const gdpy_param *p = &c->function->params[i];
        if (p->kind != GDPY_FLOAT || strcmp(p->name, name) != 0) continue;
        char option[64]; /* the record's name is the first of the others */
        snprintf(option, sizeof option, "%.*s", (int)strcspn(p->also, " "), p->also);
        if (gd_layer_set_number_at(gdpy_site(), m, option, value) != GD_OK) return gdpy_raise();
        return Py_NewRef(Py_True);
    }
    return Py_NewRef(Py_False);
}

/* [(name, value, how)] of the options of a layer, in the order of its arguments: `how` is "default" or
 * "given". Empty if the module is no layer. */
PyObject *gdpy_module_options(PyObject *module, PyObject *self) {
    (void)module;
    gd_module *m = gdpy_handle(self, GDPY_MODULE, "self");
    PyObject *record = m ? PyObject_GetAttrString((PyObject *)Py_TYPE(self), "_record") : NULL;
    if (!record) return NULL;
    const char *name = PyUnicode_Check(record) ? PyUnicode_AsUTF8AndSize(record, NULL) : "";
    const void *options = name ? gd_layer_options(m, name) : NULL;
    const gdpy_constructor *c = constructor_of(name);
    Py_DECREF(record);
    PyObject *list = PyList_New(0);
    char defaults[4096];
    if (!options || !c->kind || c->fill(NULL) > sizeof defaults) return list;
    memset(defaults, 0, sizeof defaults);
    c->fill(defaults);
    for (int i = 0; list && i < c->function->count; i++) {
        const gdpy_param *p = &c->function->params[i];
        if (p->kind >= GDPY_DEVICE) continue;
        PyObject *value = gdpy_option_object(p, options),
                 *usual = value ? gdpy_option_object(p, defaults) : NULL;
        const int same =
            usual ? !(p->flags & GDPY_REQUIRED) && PyObject_RichCompareBool(value, usual, Py_EQ)
                  : -1;
        PyObject *row =
            same < 0 ? NULL : Py_BuildValue("(sOs)", p->name, value, same ? "default" : "given");
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
        Py_XDECREF(usual);
        Py_XDECREF(value);
    }
    return list;
}
