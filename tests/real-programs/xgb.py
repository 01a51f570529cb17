import numpy as np
import xgboost

r = np.random.RandomState(4)
x = r.rand(300000, 30).astype(np.float32)
y = x[:, 0] * 3 + np.sin(x[:, 1] * 9)
data = xgboost.DMatrix(x, y, nthread=2)
model = xgboost.train({"nthread": 2, "tree_method": "hist", "max_depth": 6, "seed": 1}, data, 15)
print(round(float(model.predict(data).sum()), 2))
