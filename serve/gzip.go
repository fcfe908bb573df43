package serve

import (
	"bytes"
	"compress/gzip"
	"slices"
)

// smallest is the smallest page that is worth being compressed, in bytes.
const smallest = 1 << 10

// acceptsGzip reports whether an Accept-Encoding admits gzip.
func acceptsGzip(fields []string) bool { return acceptsCoding(fields, false, "gzip", "x-gzip") }

// acceptsIdentity reports whether an Accept-Encoding admits a body that is not compressed.
func acceptsIdentity(fields []string) bool { return acceptsCoding(fields, true, "identity") }

// acceptsCoding reports whether an Accept-Encoding (RFC 9110, section 12.5.3) admits a coding.
// unlisted is the result if it lists neither one of the names nor *.
func acceptsCoding(fields []string, unlisted bool, names ...string) bool {
	accepted, any := -1.0, -1.0
	for name, weight := range acceptedItems(fields) {
		switch {
		case slices.Contains(names, name):
			accepted = weight
		case name == "*":
			any = weight
		}
	}
	switch {
	case accepted >= 0:
		return accepted > 0
	case any >= 0:
		return any > 0
	}
	return unlisted
}

// compressGzip compresses; it returns an empty slice if that does not make b smaller.
func compressGzip(b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || out.Len() >= len(b) {
		return []byte{}
	}
	return bytes.Clone(out.Bytes())
}
