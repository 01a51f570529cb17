import numpy as np

n = 2200
a = np.arange(n * n, dtype=float).reshape(n, n) % 97
b = (np.arange(n * n, dtype=float).reshape(n, n) * 7) % 89
c = a @ b
d = np.sort(c, axis=1)
print(repr(float(c.sum())), repr(float(np.linalg.norm(d))))
