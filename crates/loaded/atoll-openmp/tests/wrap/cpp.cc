// iostreams, std::mutex, std::call_once, static locals.
#include "check.h"
#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>
static int made;
struct Made {
    Made() { usleep(10000); made++; }
};
static Made &local() { static Made m; return m; }
int main()
{
    std::vector<char> large(LARGE, 'y');
    {
        std::ofstream out("stream");
        out << "first\n";
        push_out();
        out.write(large.data(), 30000000);
        out << "\nlast\n";
    }
    std::ifstream in("stream");
    std::string line;
    CHECK(std::getline(in, line) && line == "first");
    std::vector<char> back(LARGE);
    push_out();
    in.read(back.data(), 30000000);
    CHECK(in && memcmp(back.data(), large.data(), 30000000) == 0);
    CHECK(std::getline(in, line) && std::getline(in, line) && line == "last");
    std::cout << "one ";
    printf("two ");
    std::cout << "three" << std::endl;
    fputs("four\n", stdout);
    std::mutex m;
    std::condition_variable c;
    std::once_flag once;
    int calls = 0, tries = 0, n = 0, ready = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            local();
            try {
                std::call_once(once, [&] {
                    if (tries++ == 0)
                        throw 1;
                    calls++;
                });
            } catch (int) {
                std::call_once(once, [&] { calls++; });
            }
            for (int k = 0; k < 1000; k++) {
                std::lock_guard<std::mutex> g(m);
                n++;
            }
            std::unique_lock<std::mutex> g(m);
            ready++;
            c.notify_all();
            c.wait(g, [&] { return ready == 4; });
        });
    for (auto &t : threads)
        t.join();
    CHECK(n == 4000 && calls == 1 && made == 1 && ready == 4);
    auto f = std::async(std::launch::async, [] { usleep(20000); return 42; });
    CHECK(f.get() == 42);
    std::cout << "good\n";
}
