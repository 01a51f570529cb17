/* A library of OpenMP for `late_runtime.c`. */
double sum(double *numbers, long n) {
    double all = 0;
#pragma omp parallel for reduction(+ : all)
    for (long i = 0; i < n; i++) {
        numbers[i] += 1;
        all += numbers[i];
    }
    return all;
}
