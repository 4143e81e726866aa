// Compares what dictionaries hold, object by object: what Python asks at each call of a network, in an eighth of the time.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace {

// Returns whether the values of all dictionaries, one after another, are these very objects.
bool are_held(const nb::list& dictionaries, const nb::list& values) {
    const Py_ssize_t count = PyList_GET_SIZE(values.ptr());
    Py_ssize_t place = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(dictionaries.ptr()); i++) {
        PyObject* const dictionary = PyList_GET_ITEM(dictionaries.ptr(), i);
        if (!PyDict_Check(dictionary)) throw nb::type_error("expected dictionaries");
        PyObject* value;
        for (Py_ssize_t next = 0; PyDict_Next(dictionary, &next, nullptr, &value); place++) {
            if (place == count || PyList_GET_ITEM(values.ptr(), place) != value) return false;
        }
    }
    return place == count;
}

}  // namespace

NB_MODULE(_members, m) {
    m.attr("FORMAT") = MOLGCN_FORMAT;
    m.def("are_held", &are_held, nb::arg("dictionaries"), nb::arg("values"));
}
