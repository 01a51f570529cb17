import numpy as np
import pandas as pd

r = np.random.RandomState(0)
n = 1_200_000
d = pd.DataFrame({"k": r.randint(0, 20000, n), "v": r.rand(n), "w": r.randint(0, 100, n)})
g = d.groupby("k").agg({"v": "mean", "w": "sum"})
s = d.merge(g, on="k").sort_values(["w_x", "v_x"])
print(len(s), round(float(s["v_y"].iloc[::1000].sum()), 6))
