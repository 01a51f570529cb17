import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

r = np.random.RandomState(1)
x = r.rand(200000, 30).astype(np.float32)
y = (x[:, 0] + x[:, 1] * x[:, 2] > 0.8).astype(int)
print(round(float(KMeans(8, n_init=1, random_state=0, max_iter=10).fit(x).inertia_), 1))
print(HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(x, y).score(x, y))
print(RandomForestClassifier(8, n_jobs=2, random_state=0, max_depth=10).fit(x, y).score(x, y))
