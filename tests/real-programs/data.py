"""Makes the inputs of the real programs in the current folder, the same ones each time: a picture, genes and reads, text."""
import random

random.seed(1)


def picture(name, width, height):
    line = bytes(random.randrange(256) for _ in range(width * 3))
    with open(name, "wb") as file:
        file.write(b"P6 %d %d 255\n" % (width, height))
        for y in range(height):
            file.write(line[y % 977 * 3 :] + line[: y % 977 * 3])


def genes(length):
    return "".join(random.choices("ACGT", k=length))


def fasta(name, sequences):
    with open(name, "w") as file:
        for i, sequence in enumerate(sequences):
            file.write(">s%d\n%s\n" % (i, sequence))


def changed(sequence, part):
    return "".join(random.choice("ACGT") if random.random() < part else letter for letter in sequence)


picture("picture.ppm", 3000, 2500)
reference = genes(3_000_000)
fasta("reference.fa", [reference])
starts = [random.randrange(len(reference) - 2000) for _ in range(3000)]
fasta("reads.fa", [changed(reference[at : at + 2000], 0.03) for at in starts])
family = genes(900)
fasta("family.fa", [changed(family, 0.2) for _ in range(150)])
with open("text", "w") as file:
    words = [genes(random.randrange(2, 12)) for _ in range(5000)]
    for _ in range(700_000):
        file.write(random.choice(words) + random.choice(" \n  "))
        file.write("%d," % random.randrange(10**9))
