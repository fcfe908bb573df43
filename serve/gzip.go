package serve

import (
	"bytes"
	"compress/gzip"
)

// smallest is the smallest page that is worth being compressed, in bytes.
const smallest = 1 << 10

// acceptsGzip reports whether an Accept-Encoding (RFC 9110, section 12.5.3) admits gzip.
func acceptsGzip(fields []string) bool {
	accepted, any := -1.0, -1.0
	for name, weight := range acceptedItems(fields) {
		switch name {
		case "gzip", "x-gzip":
			accepted = weight
		case "*":
			any = weight
		}
	}
	return accepted > 0 || accepted < 0 && any > 0
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
