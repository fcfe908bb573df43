package admin

import (
	"compress/gzip"

	"github.com/klauspost/compress/gzhttp"
)

// leastCompressed is the size of the smallest answer that is compressed, in bytes. For a smaller
// one the buffers take more time and memory than a client on the network could save.
const leastCompressed = 32 << 10

// compress compresses large answers for clients that accept gzip. The status of thousands of feeds
// has many megabytes, of which about a tenth is left. Its options are valid.
var compress, _ = gzhttp.NewWrapper(gzhttp.MinSize(leastCompressed), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false))
