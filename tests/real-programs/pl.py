import polars as pl

n = 3_000_000
d = pl.DataFrame({"i": range(n)}).with_columns(
    ((pl.col("i") * 7919) % 20011).alias("k"), ((pl.col("i") * 104729) % 1000003).alias("v")
)
g = d.group_by("k").agg(pl.col("v").sum().alias("sum"), pl.col("v").max().alias("most"))
j = d.join(g, on="k").sort(["most", "v", "i"])
print(len(j), j["sum"].sum(), j["i"].gather_every(1000).sum())
