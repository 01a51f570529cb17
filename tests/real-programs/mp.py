from multiprocessing import Pool

import numpy as np


def part(i):
    return float(np.sort(np.random.RandomState(i).rand(1_000_000)).sum())


if __name__ == "__main__":
    table = np.random.RandomState(9).rand(12_000_000)
    with Pool(2) as pool:
        print(round(sum(pool.map(part, range(8))), 6))
    print(round(float(np.sort(table)[::1000].sum()), 6))
