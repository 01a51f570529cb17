import lightgbm
import numpy as np

r = np.random.RandomState(3)
x = r.rand(300000, 30)
y = x[:, 0] * 3 + np.sin(x[:, 1] * 9) + r.rand(300000) * 0.1
data = lightgbm.Dataset(x, y, free_raw_data=False)
settings = {"num_threads": 2, "deterministic": True, "force_row_wise": True, "seed": 1, "verbose": -1, "num_leaves": 63}
model = lightgbm.train(settings, data, num_boost_round=15)
print(repr(float(model.predict(x).sum())))
