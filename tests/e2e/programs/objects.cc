// Trap 12: constructors that allocate before main, a 200 MB static array; vectors, exceptions and streams in regions.
#include "e2e.h"
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::vector<double> before_main(3 << 20, 1.5);
static std::map<std::string, int> names = {{"one", 1}, {"two", 2}};
static double huge[9 << 20];
struct Ends {
    ~Ends() { std::cout << "destructor of a static" << std::endl; }
};
static Ends ends;

struct Thing {
    std::vector<int> v;
    std::string s;
    explicit Thing(int n) : v(n, n), s(std::to_string(n) + " as a string that is too long to be kept inline") {}
};

struct Failure : std::runtime_error {
    int code;
    explicit Failure(int c) : std::runtime_error("failure " + std::to_string(c)), code(c) {}
};

[[gnu::noinline]] static void may_throw(int i) {
    Thing t(i % 50);
    if (i % 3 == 0) throw Failure(i);
    if (i % 7 == 0) throw std::out_of_range("seven");
}

int main() {
    CHECK(before_main[5] == 1.5 && names["two"] == 2);
#pragma omp parallel for
    for (long i = 0; i < 9 << 20; i += 64) huge[i] = double(i);
    double s = 0;
#pragma omp parallel for reduction(+ : s)
    for (long i = 0; i < 9 << 20; i += 64) s += huge[i] - double(i) + huge[i + 1];
    CHECK(s == 0);
    int caught = 0, other = 0;
#pragma omp parallel for reduction(+ : caught, other) schedule(dynamic, 7)
    for (int i = 0; i < 2100; i++) {
        try {
            may_throw(i);
        } catch (const Failure &f) {
            CHECK(f.code == i && std::string(f.what()) == "failure " + std::to_string(i));
            caught++;
        } catch (const std::exception &) {
            other++;
        }
    }
    std::cout << caught << " " << other << std::endl;
    std::vector<std::vector<double>> rows(200);
    std::vector<std::unique_ptr<Thing>> things(500);
#pragma omp parallel
    {
#pragma omp for
        for (int i = 0; i < 200; i++) {
            for (int k = 0; k < 20000; k++) rows[i].push_back(i + k);
        }
#pragma omp for schedule(dynamic, 1)
        for (int i = 0; i < 500; i++) things[i] = std::make_unique<Thing>(i);
#pragma omp for schedule(dynamic, 3)
        for (int i = 0; i < 200; i++) std::sort(rows[i].rbegin(), rows[i].rend());
    }
    double total = 0;
    for (auto &r : rows) total += std::accumulate(r.begin(), r.end(), 0.0);
    for (int i = 0; i < 500; i++) CHECK(int(things[i]->v.size()) == i && things[i]->s[0] == std::to_string(i)[0]);
    std::cout << std::fixed << total << std::endl;
    std::exception_ptr passed;
#pragma omp parallel
    {
        try {
            if (omp_get_thread_num() == omp_get_num_threads() - 1) throw Failure(5);
        } catch (...) {
#pragma omp critical
            passed = std::current_exception();
        }
    }
    try {
        std::rethrow_exception(passed);
    } catch (const Failure &f) {
        CHECK(f.code == 5); // thrown in a worker, caught again in the master
    }
    std::vector<double> sum(1 << 20);
    std::vector<double> &in = before_main;
#pragma omp parallel for simd
    for (size_t i = 0; i < sum.size(); i++) sum[i] = in[i] * 2;
    CHECK(std::accumulate(sum.begin(), sum.end(), 0.0) == 3.0 * (1 << 20));
    for (int round = 0; round < 3; round++) {
#pragma omp parallel for ordered schedule(static, 1)
        for (int i = 0; i < 8; i++) {
            std::ostringstream text;
            text << "round " << round << " line " << i << "\n";
#pragma omp ordered
            std::cout << text.str() << std::flush;
        }
    }
    return verdict();
}
