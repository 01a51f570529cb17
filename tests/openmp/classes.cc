// C++: objects as private data of regions and tasks, reductions over them, exceptions inside a region.
#include <atomic>
#include <stdexcept>
#include <vector>

#include "check.h"

static std::atomic<long> alive;

struct Counted {
    int value;
    explicit Counted(int v = 0) : value(v) { alive++; }
    Counted(const Counted &other) : value(other.value) { alive++; }
    Counted &operator=(const Counted &) = default;
    ~Counted() { alive--; }
};

#pragma omp declare reduction(+ : Counted : omp_out.value += omp_in.value) initializer(omp_priv = Counted(0))

static int tree(int depth) {
    if (depth == 0)
        return 1;
    int left = 0, right = 0;
    Counted token(depth);
#pragma omp task shared(left) firstprivate(token)
    left = tree(token.value - 1);
#pragma omp task shared(right) firstprivate(token) if (depth % 2)
    right = tree(token.value - 1);
#pragma omp taskwait
    return left + right;
}

int main() {
    {
        Counted sum(0), first(3), last(0);
#pragma omp parallel for reduction(+ : sum) firstprivate(first) lastprivate(last) schedule(dynamic, 2)
        for (int i = 0; i < 100; i++) {
            sum.value += first.value;
            last.value = i;
        }
        CHECK(sum.value == 300 && last.value == 99);
        int leaves = 0;
#pragma omp parallel
#pragma omp single
        leaves = tree(9);
        CHECK(leaves == 512);
        Counted copy(0);
#pragma omp parallel firstprivate(copy)
        {
#pragma omp single copyprivate(copy)
            copy.value = 9;
            CHECK(copy.value == 9);
        }
        int caught = 0;
#pragma omp parallel reduction(+ : caught)
        {
            try {
                throw std::runtime_error("inside");
            } catch (const std::exception &) {
                caught += 1;
            }
        }
        CHECK(caught == omp_get_max_threads());
        std::vector<int> numbers(1000, 1);
        long total = 0;
#pragma omp parallel for reduction(+ : total)
        for (auto at = numbers.begin(); at < numbers.end(); ++at)
            total += *at;
        CHECK(total == 1000);
        Counted tasks(0);
#pragma omp parallel
#pragma omp single
#pragma omp taskgroup task_reduction(+ : tasks)
        for (int i = 0; i < 20; i++) {
#pragma omp task in_reduction(+ : tasks)
            tasks.value += i;
        }
        CHECK(tasks.value == 190);
    }
    CHECK(alive == 0);
    return result();
}
