"""Every limit of Treadle's formats. A reader checks a count or length against its limit *and* against the
bytes that are left before it allocates anything; a writer checks them too, so that what is saved loads."""

SECTIONS = 64
SECTION_NAME_BYTES = 64
INDEX_BYTES = 1 << 20
STRING_BYTES = 1 << 16
STRINGS = 1 << 20
ELEMENT_BYTES = 1 << 28  # of a text that is an element of a tensor while a program runs; in files it is a string

FUNCTIONS = 100_000
PARAMETERS = 10_000  # of a function
REGISTERS = 1 << 20  # of a function, each of the two kinds
FRAME_BYTES = 1 << 40  # planned tensor memory of a function
MEMORIES = 16  # that the verifier takes a register to hold at most; those of one that may hold more count as shared
CODE_WORDS = 1 << 27  # of a program
OPERANDS = 10_000  # in one list of an instruction

CONSTANTS = 1 << 20
CONSTANT_BYTES = 1 << 40  # each
TYPES = 1 << 20
DEVICES = 64  # of a program, besides the host
TYPE_NESTING = 64
CONSTRUCTORS = 4096  # of a data type
FIELDS = 10_000  # of a tuple or constructor

PRIMITIVES = 1 << 20
PRIMITIVE_NODES = 256  # fusion makes 48 and their constants at most; 256 exponentials compile for 8 s
PRIMITIVE_BYTES = 1 << 20  # encoded definition of one

RANK = 32
DIMENSION = (1 << 47) - 1  # elements along an axis; also the largest number of bytes of a tensor
DIM_BYTES = 1024  # of the text of a symbolic dimension
DIM_NAME = 128  # characters of a size's name
DIM_TERMS = 64  # in one symbolic dimension
DIM_NESTING = 16
# Arithmetic on symbolic dimensions: products of terms in one operation, factors of a term, and all atoms of an
# expression written out. Stored dimensions are far smaller; what is computed from them on the way may be larger.
DIM_PRODUCTS = 4096
DIM_FACTORS = 128
DIM_ATOMS = 16_384

ALIGNMENT = 64  # bytes, of every constant and every tensor that the machine allocates
TEXT_BYTES = 1 << 33  # of an assembly or IR text

# Of a constant that compiling makes of others: FOLDED_BYTES, or FOLDED_TIMES as many bytes as it is made of, whichever is more.
# Models write weights that are all alike as one number and a shape, VGG-19 one of 411 MB; others are padded to whole blocks.
FOLDED_BYTES = 1 << 29
FOLDED_TIMES = 8
FOLDED_TEXT_BYTES = 1 << 16  # of the texts that compiling makes of others by one operator
FOLDED_BYTES_IN_ALL = 1 << 30  # of what is folded while one model is compiled, and 16 for each byte of its weights

TABLE_BYTES = 1 << 28  # a section other than code, constants and native code
# Values in all tables of a file together: reading one takes one to three microseconds and 100 bytes, so tables of tiny values,
# such as three million empty tuples, would take longer than their bytes say. DenseNet-121, of 191 primitives, has 23,087.
TABLE_SCALARS = 1 << 20
METADATA = 4096  # entries
SOURCES = 1 << 24  # entries of the source map

# Of what stands between texts and tensors. The tokenizer of Gemma 3 has 33 MB, templates of chats have up to 20 KB.
TOKENIZER_BYTES = 1 << 27
CHAT_TEMPLATE_BYTES = 1 << 16
TEXT_ENTRIES = 1 << 16  # labels, prompts, special tokens
CHAT_BYTES = 1 << 26  # messages of a session
SEED_BYTES = 64

MODULES = 4096  # in one library

TARGETS = 64  # in the native section
KERNELS = 1 << 20  # of a target
OBJECT_BYTES = 1 << 30  # of native code, each
KERNEL_WORDS = 4096  # static words of a kernel
SCRATCH_BYTES = 1 << 36  # of memory that one call of a kernel works in

# Of a graph JSON. Reading a byte of it takes some 10 bytes of memory at most.
GRAPH_JSON_BYTES = 1 << 27
GRAPH_NODES = 1 << 20
GRAPH_ENTRIES = 1 << 20  # tensors that nodes make
GRAPH_OUTPUTS = 10_000  # of a node

INFLATED_TIMES = 64  # as many bytes as a compressed library may stand for, times its own

# Of the check of a Relax function: bits that it keeps, places where paths meet times registers (128 MiB), and instructions
# that it looks at, for each instruction of the function. Each loop within a loop adds some; compilers nest few.
FLOW_BITS = 1 << 30
FLOW_STEPS = 64
