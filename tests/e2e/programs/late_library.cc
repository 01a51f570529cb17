// A library for late_loading.c: thread-local variables of both kinds that glibc has, one with a destructor, and an exception.
#include <cstdint>
#include <stdexcept>

static thread_local int64_t dynamic_variable = 11;
static thread_local int64_t dynamic_zero[40];
static thread_local int64_t static_variable __attribute__((tls_model("initial-exec"))) = 22;
static thread_local int64_t static_zero __attribute__((tls_model("initial-exec")));

struct Counted {
    int value = 33;
};
static thread_local Counted counted;

extern "C" int64_t late_sum(void) {
    return dynamic_variable + dynamic_zero[39] + static_variable + static_zero + counted.value;
}

extern "C" void late_set(int64_t to) {
    dynamic_variable = dynamic_zero[39] = static_variable = static_zero = counted.value = to;
}

extern "C" __attribute__((noinline)) void late_throw(int what) {
    if (what % 2) throw std::runtime_error("odd");
}

extern "C" int late_catch(int what) {
    try {
        late_throw(what);
        return 0;
    } catch (const std::exception &) {
        return 1;
    }
}
