// iostreams, std::mutex, std::call_once, static locals, std::atomic::wait between workers.
#include "check.h"
#include <atomic>
#include <condition_variable>
#include <iostream>
#include <memory>
#include <mutex>
#include <omp.h>
#include <sstream>
static int made;
struct Made {
    int value = 7;
    Made() { usleep(50000); made++; }
    ~Made() { printf("unmade\n"); }
};
static Made &local() { static Made m; return m; }
static std::mutex m;
static std::condition_variable c;
static std::once_flag once;
static int calls, n, ready, tries;
int main()
{
    std::cout << "before ";
#pragma omp parallel num_threads(4)
    {
        CHECK(local().value == 7 && made == 1);
        for (int again = 1; again;) {
            try {
                std::call_once(once, [] {
                    if (tries++ == 0)
                        throw 1;
                    usleep(20000);
                    calls++;
                });
                again = 0;
            } catch (int) {
            }
        }
        for (int k = 0; k < 1000; k++) {
            std::lock_guard<std::mutex> g(m);
            n++;
        }
        std::unique_lock<std::mutex> g(m);
        ready++;
        c.notify_all();
        c.wait(g, [] { return ready == 4; });
    }
    auto shared = std::make_shared<int>(5);
#pragma omp parallel num_threads(4)
    for (int k = 0; k < 100000; k++) {
        std::shared_ptr<int> copy = shared;
        CHECK(*copy == 5);
    }
    CHECK(shared.use_count() == 1);
    CHECK(n == 4000 && calls == 1 && made == 1);
#pragma omp parallel for ordered num_threads(4)
    for (int i = 0; i < 4; i++) {
#pragma omp ordered
        std::cout << i << ' ';
    }
    std::cout << "good\n";
}
