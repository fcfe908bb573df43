package serve

import (
	"bytes"
	"compress/gzip"
	"strconv"
	"strings"
)

// smallest is the smallest page that is worth being compressed, in bytes.
const smallest = 1 << 10

// acceptsGzip reads an Accept-Encoding (RFC 9110, section 12.5.3).
func acceptsGzip(fields []string) bool {
	accepted, any := -1.0, -1.0
	for _, item := range strings.Split(strings.Join(fields, ","), ",") {
		name, params, _ := strings.Cut(item, ";")
		q := 1.0
		if value, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(params)), "q="); ok {
			var err error
			if q, err = strconv.ParseFloat(value, 64); err != nil {
				q = 0
			}
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip":
			accepted = q
		case "*":
			any = q
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
