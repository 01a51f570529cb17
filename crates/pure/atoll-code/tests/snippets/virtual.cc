// Calls of C++: a virtual call cannot be followed, a template and an exception can.
#include <vector>

struct Shape {
    virtual double area() const = 0;
    virtual ~Shape() {}
};
extern "C" double unknown_virtual(const Shape *s) { return 1 + s->area(); }

template <class F> static double twice(F f, double x) { return f(f(x)); }
extern "C" double plain_template(double x) {
    return twice([](double y) { return y * 3; }, x);
}
extern "C" double plain_vector(std::vector<double> &v) {
    double s = 0;
    for (double x : v) s += x;
    return s;
}
extern "C" double plain_throws(double x) {
    if (x < 0) throw 3;
    return x * 2;
}
static int make();
extern "C" int atomic_static_local() {
    static int once = make();
    return once;
}
volatile int seed;
__attribute__((noinline)) static int make() { return seed; }
// Only reached when something is thrown.
int handled, cleaned;
struct Cleans {
    ~Cleans() { __sync_fetch_and_add(&cleaned, 1); }
};
extern void thrower(int) __attribute__((noinline));
extern "C" int atomic_in_a_handler(int x) {
    try {
        thrower(x);
    } catch (int) {
        __sync_fetch_and_add(&handled, 1);
    }
    return handled;
}
extern "C" int plain_handler(int x) {
    try {
        thrower(x);
    } catch (int) {
        handled++;
    }
    return handled;
}
void thrower(int x) {
    if (x > 3) throw x;
}
int main() { return 0; }
