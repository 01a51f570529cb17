// Threads of C++ without OpenMP: vectors that are filled, sorted, written to files and read back by threads that begin at once.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

static const size_t N = 2000000;

static uint64_t work(std::vector<uint64_t> &numbers, uint64_t x) {
    numbers.resize(N);
    for (auto &number : numbers) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        number = x;
    }
    std::sort(numbers.begin(), numbers.end());
    FILE *file = tmpfile();
    std::vector<uint64_t> again(N);
    bool same = fwrite(numbers.data(), 8, N, file) == N;
    rewind(file);
    same = same && fread(again.data(), 8, N, file) == N && again == numbers;
    fclose(file);
    uint64_t sum = same;
    for (size_t i = 0; i < N; i += 100) sum += numbers[i] * i;
    return sum;
}

int main() {
    std::vector<std::vector<uint64_t>> parts(4);
    std::mutex mutex;
    std::condition_variable all;
    uint64_t total = 0;
    for (int round = 0; round < 3; round++) {
        int done = 0;
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++)
            threads.emplace_back([&, t] {
                uint64_t sum = work(parts[t], t + 1 + round);
                std::lock_guard<std::mutex> guard(mutex);
                total += sum;
                done++;
                all.notify_all();
            });
        std::unique_lock<std::mutex> guard(mutex);
        all.wait(guard, [&] { return done == 4; });
        guard.unlock();
        for (auto &thread : threads) thread.join();
    }
    printf("%llu\n", (unsigned long long)total);
}
