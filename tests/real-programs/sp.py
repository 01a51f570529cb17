import numpy as np
import scipy.fft
import scipy.ndimage
import scipy.sparse as sparse
import scipy.sparse.linalg

n = 400
line = sparse.diags([-1, 2, -1], [-1, 0, 1], (n, n))
grid = (sparse.kron(line, sparse.eye(n)) + sparse.kron(sparse.eye(n), line)).tocsc()
x = sparse.linalg.spsolve(grid, np.ones(n * n))
picture = np.arange(3000 * 2000, dtype=float).reshape(3000, 2000) % 101
smooth = scipy.ndimage.gaussian_filter(picture, 3)
spectrum = scipy.fft.fft2(smooth, workers=2)
print(round(float(x.sum()), 3), round(float(abs(spectrum).max()), 3))
