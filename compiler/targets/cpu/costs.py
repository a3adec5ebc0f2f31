"""What the CPU's templates and passes assume of speed: each figure once, with its unit, its date, and how it was measured.

    NAME = value  # date commit | unit: meaning | what was measured

Dates are days of November 2026; the commit is the first with that value. What was measured is what the commit says: none names
its command, and where nothing stands, how a figure was found is unknown. The machine is taken to be that of `docs/benchmarks.md`
of those days: an AMD EPYC (family 26, model 2: Zen 5, AVX-512; L1 48 KiB, L2 1 MiB, L3 32 MiB), two hardware threads. A change
is judged by `treadle bench models`. Sizes of tiles, strips and buffers stand in their templates.
"""

# fmt: off

# ---- the machine ----

GIGAHERTZ = 4.0                     # 20 c957a0e | GHz: clock that counts of cycles are turned into times by
LINE_BYTES = 64                     # 20 77e0ffa | bytes: a cache line: rows are longer by it, to lie in different sets of L1
WAY_BYTES = 4096                    # 21 1e27078 | bytes: a way of L1, and a page: addresses this far apart are in one set
HALF_WAY_BYTES = WAY_BYTES // 2     # 20 85eb436 | bytes: rows this far apart are in two sets of L1
QUARTER_WAY_BYTES = WAY_BYTES // 4  # 21 54e5280 | bytes: rows this far apart are in four sets of L1
HALF_L1_BYTES = 16 << 10            # 21 99656b7 | bytes: half of the smallest L1: a tile, beside what it is made of
SMALL_L2_BYTES = 256 << 10          # 22 cf3b8ba | bytes: the smallest L2: rows prefetched, strips kept | softmax: 1.1 to 1.5
MERGED_BYTES = 1 << 20              # 22 1ce6032 | bytes: result of merged products that stays in L2 until attention reads it
STREAMED_BYTES = 32 << 20           # 22 275763f | bytes: a result that is stored non-temporally | 64 MB: 4.7 to 2.8 ms
PREFETCH_L2_BYTES = 1024            # 27 6cc32bd | bytes: prefetch distance of weights in L2 | an int8 LSTM: 0.93 times
PREFETCH_BYTES = 4096               # 21 995b315 | bytes: prefetch distance of weights from beyond L2 | without: a third less
PREFETCH_CYCLES = 1600              # 23 efe117e | cycles: least prefetch distance of weights from memory

# ---- sizes known only at run time, as estimates take them ----

SYMBOLIC_SIZE = 64    # 20 0183403 | elements: a symbolic dimension
IMAGE_SIDE = 224      # 22 681526b | pixels: a symbolic side of an image
TEXT_BYTES = 100      # 25 f09b94f | bytes: a text
COUPLING_ROUNDS = 6   # 25 f09b94f | rounds: of pairwise coupling
ATTENTION_BAND = 256  # 21 8faf089 | queries: of a unit of work of attention, where their number is symbolic

# ---- units of work ----

MANY_UNITS = 16       # 22 e7a265c | units: threads share this many about evenly, whatever their number
SOME_UNITS = 8        # 21 8faf089 | units: that a call is cut into where each is still long enough
UNEVEN_TILES = 1.02   # 21 150cbba | × a share: largest share of two threads at which larger tiles or bands are still used
UNEVEN_PIECES = 1.05  # 21 5ff5f22 | × a share: largest share at which work is cut into no more pieces
RUN_UNIT = 4096       # 20 0183403 | elements: of a row that are one unit of work
INDEX_UNIT = 1024     # 20 2ac4c80 | elements: looked up or put by index that are one unit of work

# ---- time of one thread: from these follows by how many threads a call is shared ----

COPY_BYTE_PS = 40      # 21 de3c20b | ps a byte: that is copied, in any order of axes
CACHED_BYTE_NS = 0.01  # 20 b0709d0 | ns a byte: that a vector moves from or to the caches
CHANNELS_PS = 100      # 21 99656b7 | ps an element: of blocked images joined, cut or interleaved within a block
PACK_PS = 120          # 20 b8f209d | ps an element: of an image packed into channel blocks, or unpacked
SHORT_RUN_PS = 400     # 22 c92ffed | ps an element: of runs shorter than a vector, copied by a table
GATHER_PS = 500        # 21 5a3a06e | ps an element: with an index of its own
GATHER_ROW_PS = 2000   # 21 f5b884a | ps a row: looked up by an index of several axes
SCATTER_PS = 1000      # 21 f5b884a | ps an update: of a scatter; an element that is copied takes a twentieth
RESIZE_PS = 200        # 20 f4b9279 | ps an element: resampled along one axis
RESIZE_IMAGE_PS = 30   # 22 62bbab1 | ps an element: resampled to the nearest along two axes
CHEAP_NS = 0.02        # 20 0183403 | ns an element: of an operator that OPERATOR_NS does not name
OWN_NS = 2             # 23 1ff1c8e | ns an element: of a user's kernel: a guess, nobody has measured it
CUMULATIVE_PS = 1000   # 21 f5b884a | ps an element: of a running sum; in a vector, a quarter of it
GROUP_NORM_NS = 0.05   # 21 db50bd3 | ns an element: of group normalisation, beside its epilogue
ROTARY_PS = 150        # 22 dd0b64c | ps an element: of rotary places
TOP_K_PS = 1500        # 21 f5b884a | ps an element: that a heap is shown
FOUND_PS = 1000        # 22 632839e | ps an element: looked at for what is not zero
TREE_STEP_PS = 700     # 23 2706315 | ps a node: that a row passes
BOX_PS = 4000          # 22 eddf268 | ps a box: of non-maximum suppression | 80 classes of 1,000 boxes: 0.95 ms
REGION_PS = 2000       # 22 404c8ba | ps a channel: of a bin of a region | a detector's head: 1.5 ms
COUPLING_PS = 1000     # 25 f09b94f | ps an element: of the matrix in a round of pairwise coupling
TEXT_BYTE_PS = 2000    # 25 f09b94f | ps a byte: of a text whose n-grams are counted
POOL_TAP_PS = 60       # 21 cfd4fe0 | ps a tap: of an element of the result along an axis
COL2IM_PS = 60         # 22 784918c | ps an element: of the columns that are added up to an image
MEETING_NS = 400       # 21 4dfd3c9 | ns a phase: that parts lose where they take steps together
GATHER_ALONG_PS = 200  # 20 2ac4c80 | ps an element: looked up along the last axis
TEXT_COLUMN_PS = 100   # 25 f09b94f | ps a column: of a text's counts
EXTREME_PS = 150       # 20 2ac4c80 | ps an element: looked at for the greatest or least of a row
QUANTIZE_PS = 60       # 27 b452481 | ps an element: of rows quantised to 8 bits
SOFTMAX_NS = 0.6       # 20 87fd749 | ns an element: of softmax
LOG_SUM_EXP_NS = 0.5   # 20 87fd749 | ns an element: of log-sum-exp
NORM_NS = 0.15         # 20 87fd749 | ns an element: of layer and instance normalisation
BATCH_NORM_NS = 0.1    # 20 87fd749 | ns an element: of batch normalisation

OPERATOR_NS = {  # 20 0183403 | ns an element: of operators in a vector
    **dict.fromkeys(("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "gelu", "silu", "mish", "elu"), 0.35),
    **dict.fromkeys(("sinh", "cosh", "asin", "acos", "atan", "softplus"), 0.35),
    **dict.fromkeys(("sin", "cos", "tan", "asinh", "acosh", "atanh"), 1.0),
    **dict.fromkeys(("divide", "remainder", "floor_divide", "fmod"), 1.0),
    "pow": 1.5,
}

# ---- rates of one thread ----

GEMM_MACS = 100      # 20 85eb436 | multiply-adds a ns: of float32 products by register tiles
ATTENTION_MACS = 80  # 20 77e0ffa | multiply-adds a ns: of attention, softmax included
RECURRENT_MACS = 16  # 20 21fb606 | multiply-adds a ns: of recurrent cells, and of convolutions without channel blocks
RECURRENT_BYTES = 32  # 27 0607b38 | multiply-adds a ns: of recurrent cells of int8, at a byte_speed of 1
STATE_ELEMENTS = 24   # 27 0a768b5 | elements a ns: of a state of linear attention, read and written for each token
PRODUCT_MACS = 4     # 20 babb31a | multiply-adds a ns: of products of other types than float32
DEPTHWISE_STEPS = 6  # 21 88bc876 | vectors a ns: multiplied and added by depthwise convolutions
COPIED_BYTES = 16    # 20 85eb436 | bytes a ns: of a matrix copied or turned for a product
STREAMED_RATE = 40   # 21 338081e | bytes a ns: of weights read once by few rows

# ---- cycles and relative costs, from which tiles and algorithms are chosen ----

TILE_ROW_CYCLES = 0.05       # 20 111871e | cycles a row: of a step, beside its multiply-adds: an element in L1
TILE_BLOCK_CYCLES = 0.3      # 20 111871e | cycles a block: of a step: a vector in L2
TILE_STEP_CYCLES = 0.3       # 20 111871e | cycles a step
TILE_REST = 1.02             # 20 111871e | × the time: of blocks or rows that tiles leave over: a second loop
TALL_ROWS = 8                # 22 18dd798 | rows: of a tile up to which rows far apart do not crowd L1 | 2048x512x512: 1.14 times
TALL_ROW = 0.02              # 22 18dd798 | × the time: of each further row | the same
TRANSFORM_CYCLES = 4         # 20 fa06b23 | cycles an element: of a tile, a vector, that Winograd's transforms take
RAW_TRANSFORM_CYCLES = 35    # 22 a1953ab | cycles a window: transforming raw weights | 512 of 7x7: 685 to 53 us
RAW_PRODUCT_CYCLES = 0.62    # 22 a1953ab | cycles a product: of raw weights, loads and sums included | the same
WINOGRAD_TRANSFORM = 4       # 20 fa06b23 | multiply-adds: an element of a tile, of a block, along one axis: transforming it
WINOGRAD_SINGLE = 4          # 23 0f169ba | multiply-adds: likewise, more where pixels of a line are stored one by one
WINOGRAD_RAW_TRANSFORM = 54  # 22 a1953ab | multiply-adds: a window of raw weights
WINOGRAD_RAW_SLOWER = 1.14   # 22 fbbe42b | × the time: of products of raw weights, which want more from L1
WINOGRAD_GAIN = 1.2          # 20 fa06b23 | × fewer multiply-adds: for which larger weights are worth it
LOAD = 16                    # 20 fa06b23 | multiply-adds: a vector of weights from memory
NEAR_LOAD = 8                # 22 fbbe42b | multiply-adds: a vector of weights from the caches
NEAR_BYTES = 2 << 20         # 22 fbbe42b | bytes: of weights that may stay in the caches from the call before
NEAR_IMAGES = 4              # 22 fbbe42b | images: that take the same weights from the caches one after another
OVERLAP = 30                 # 22 784918c | multiply-adds: a vector of a product's result, written and added up
PACK_VECTOR = 12             # 22 784918c | multiply-adds: a vector of the image packed into channel blocks
PLACE_VECTOR = 46            # 22 784918c | multiply-adds: a vector of the result brought in its place, in three copies
RAGGED_VECTORS = 2           # 22 784918c | vectors: more that a line of a product's tiles takes, since its ends do not fill tiles

# ---- crossovers between algorithms ----

LATENCY_BOUND_NS = 0.3         # 21 32742ab | ns an element: above which an operator is latency-bound: one per stage
PAIRED_NS = 0.6                # 21 bdd47a2 | ns an element: of a chain, from which on two vectors are worked on side by side
TABLE_NS = 0.5                 # 27 44a3deb | ns an element: of bytes, from which on results are looked up | GELU: 171 to 26 us
TABLE_USES = 16                # 27 44a3deb | uses: of each entry of a table of results, at least
LONG_STEP_NS = 0.2             # 20 b0709d0 | ns an element: above which a step of a row hides latency by itself
PART_WEIGHTS = 1 << 14         # 22 8abd1cc | weights: of a part of a product; below, a product costs more than a copy
READS_A_COLUMN = 2             # 22 8abd1cc | elements: read again for each column of a product that is made in parts
GEMM_FEW_ROWS = 16             # 20 85eb436 | rows: up to which copying b costs more than it saves
GEMM_MANY_ROWS = 384           # 22 9d4ed89 | rows: from which on copying a large b pays, of many pages | 1.05 to 1.28 times
GEMM_SHALLOW = 16              # 22 8169261 | steps: of a sum up to which results are stored row by row
PRODUCT_MANY_ROWS = 16         # 22 f07a851 | rows: from which on copying columns pays, not of float32
FEW_ROWS = 4                   # 22 6a079e8 | rows: up to which a product needs no tiles | 3 to 5 times onnxruntime, 4 and 8 bits
ATTENTION_TILED = 4            # 20 77e0ffa | queries: from which on tiles pay
ATTENTION_ROW = 256            # 20 77e0ffa | elements: the longest row of queries, keys or values that the kernels take
ATTENTION_LEAST_BAND = 128     # 21 8faf089 | queries: of a unit of work, at least, where bands are made for threads
GROUP_LEAST_BAND = 256         # 21 db50bd3 | pixels: of a unit of work of group normalisation, at least
SHORT_EXTREME = 24             # 22 24b45bc | elements: of a row, up to which vectors of them are gathered from several rows
SPREAD_COLUMNS = 256           # 22 fc6d4c5 | columns: from which on a strip, far apart, is copied | softmax: 2 to 6 times
SHORT_AXIS = 64                # 22 3c774c4 | elements: of a last axis that joins the one before | colours: 11 times
TREE_FEW_ROWS = 7              # 26 6263e28 | rows: up to which each goes down eight trees together | of 500: 39 us for 6, else 46
INDEX_TABLE = range(16, 4097)  # 22 bf3be26 | indices: that are looked up by a table
INDEX_TABLE_ROWS = 4           # 22 2ccae1f | rows: that share a table, at least | gathers along the last axis: 2 to 4 times
LONG_RUN_BYTES = 32            # 22 c92ffed | bytes: from which on vectors copy a run well | short axes: 2 to 20 times
LONG_STRIDED_RUN = 64          # 22 c92ffed | elements: of a run with strides from which on it needs no table | the same
SQUARE_SIDE = 8                # 22 c92ffed | elements: of both sides from which on tiles are transposed well | the same
RUN_TABLE_USES = 8             # 22 c92ffed | uses: of each entry of a table of places, at least | the same
POOL_FEW_TAPS = 9              # 21 cfd4fe0 | taps: up to which a window is pooled at once, not axis by axis
POOL_SHORT_LINE = 56           # 22 b3a8472 | places: of a line of the result up to which planes are transposed into lanes
POOL_TURNED_PLACES = 7168      # 22 c7898c6 | places: of image and result, at most: all lanes' stay in L2
DEPTHWISE_LARGE = 128          # 23 ea2cda8 | pixels: of an image whose halves threads take
DEPTHWISE_LEAST_TILE = 8       # 22 512d3e6 | pixels: of a tile of groups, at least: else latency-bound | groups: 2 to 9 times
WINOGRAD_LEAST_CHUNK = 16      # 20 fa06b23 | tiles: worth bringing the weights from L3
WINOGRAD_LEAST_SHARE = 8       # 21 aea1dbe | tiles: worth bringing the weights from L2
PLANAR_CHANNELS = 16           # 21 9e67eda | channels: below which a convolution reads the planes of an image
LONG_LANE_SUM = 32             # 22 0c45a3f | products: from which on a sum over the lanes of a vector pays
LONG_COLUMN = 64               # 21 d3a5195 | elements: from which on a product with one column is a sum
NARROW_BYTES = 256 << 10       # 22 e13a2eb | bytes: of a matrix from which on 16-bit panels pay | decoding: 2 times
NARROW_IMAGE = 1 << 20         # 27 d697a70 | bytes: of an image from which on a depthwise convolution reads bfloat16
RECURRENT_PAIRS = 64           # 27 822294a | units: of a recurrent layer whose weights in pairs pay | 128: 1.5 to 1.9 times
POINTWISE_PACKED = 32          # 27 09428ba | multiply-adds: for an element packed, for which bfloat16 pays | 256: 1.6 times
INT8_SIDES = 12               # 27 b452481 | K·N / (K + N): from which on a product gains by rows quantised for it | half the work
WINOGRAD_SAVES = 2            # 27 b452481 | × fewer multiply-adds: of Winograd's algorithm, beside its transforms
INT8_USES = 64                # 27 b452481 | multiply-adds: an element of an image, from which on quantising it pays
INT8_MACS = 1 << 17           # 27 b452481 | multiply-adds: of a product, at least, that is worth a call to quantise its rows
POINTWISE_FEW_PIXELS = 1536    # 22 4222c77 | pixels: of image and result below which it stays blocked | 1.1 to 1.7 times
POINTWISE_GROUP = 8            # 22 7bb966e | channels: of a group, at least, whose product is worth a call | 1.1 to 2.9 times
TRANSPOSED_WASTE = 1.25        # 21 8254d4e | × the work: of zeros, from which on phases are convolved apart
