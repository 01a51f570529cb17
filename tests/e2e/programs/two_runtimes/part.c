/* A library of gcc's: who executes its region's threads, and how many threads the process has. */
#define _GNU_SOURCE
#include <dirent.h>
#include <omp.h>
#include <unistd.h>

void part(int *who) {
#pragma omp parallel
    who[omp_get_thread_num()] = gettid();
}

int threads_of_process(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}
