// Exceptions thrown and caught inside regions, by all workers at once: through frames with destructors, of several types,
// thrown on, out of loops, critical sections and tasks; and kept by a worker for the master to throw again.
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"

static std::atomic<long> alive, destroyed;

struct Guard {
    Guard() { alive++; }
    Guard(const Guard &) = delete;
    ~Guard() {
        alive--;
        destroyed++;
    }
};

struct Found : std::runtime_error {
    long at;
    std::vector<long> path;
    explicit Found(long where) : std::runtime_error("found " + std::to_string(where)), at(where), path(100, where) {}
};

static long descend(long depth, long what) {
    Guard guard;
    std::unique_ptr<long[]> block(new long[64]);
    block[0] = what;
    if (depth == 0) {
        if (what % 3 == 0)
            throw Found(what);
        if (what % 3 == 1)
            throw what;
        throw std::bad_alloc();
    }
    return descend(depth - 1, what) + block[0];
}

// What is thrown for `what`, as a number.
static int caught(long depth, long what) {
    try {
        try {
            descend(depth, what);
        } catch (const Found &) {
            throw;
        } catch (long number) {
            return number == what ? 1 : -1;
        }
    } catch (const Found &found) {
        bool right = found.at == what && found.what() == "found " + std::to_string(what) && found.path.back() == what;
        return right ? 0 : -1;
    } catch (const std::exception &) {
        return 2;
    }
    return -1;
}

static void in_loops(long n) {
    long wrong = 0;
#pragma omp parallel for reduction(+ : wrong) schedule(dynamic, 3)
    for (long i = 0; i < n; i++)
        wrong += caught(i % 20, i) != i % 3;
    CHECK(wrong == 0);
}

static void in_critical_sections(long n) {
    long handled = 0;
#pragma omp parallel
    for (long i = 0; i < n; i++) {
#pragma omp critical
        {
            try {
                descend(2, 3 * i);
            } catch (const Found &found) {
                handled += found.at == 3 * i;
            }
        }
    }
    CHECK(handled == n * omp_get_max_threads());
}

static void in_tasks(long n) {
    std::atomic<long> right(0);
#pragma omp parallel
#pragma omp single
    for (long i = 0; i < n; i++) {
#pragma omp task firstprivate(i)
        right += caught(5, i) == i % 3;
    }
    CHECK(right == n);
}

// Each worker keeps what it caught; the master throws it again when the region is over.
static void kept_for_the_master() {
    std::vector<std::exception_ptr> kept(omp_get_max_threads());
#pragma omp parallel
    {
        long me = omp_get_thread_num();
        try {
            descend(7, 3 * me);
        } catch (...) {
            kept[me] = std::current_exception();
        }
    }
    for (std::size_t worker = 0; worker < kept.size(); worker++) {
        long at = -1;
        try {
            if (kept[worker])
                std::rethrow_exception(kept[worker]);
        } catch (const Found &found) {
            at = found.at;
        }
        CHECK(at == 3 * (long)worker);
    }
}

int main(int argc, char **argv) {
    long n = argc > 1 ? std::atol(argv[1]) : 600;
    in_loops(n);
    in_critical_sections(n / 6);
    in_tasks(n / 3);
    kept_for_the_master();
    CHECK(alive == 0 && destroyed > n);
    return result();
}
