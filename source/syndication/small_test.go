package syndication_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strings"
)

func sorted(list []string) string {
	list = slices.Clone(list)
	slices.Sort(list)
	return strings.Join(list, " ")
}

// gzipped answers with a compressed document, of which the last bytes are cut off.
func gzipped(doc string, cut int) http.HandlerFunc {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(doc))
	_ = z.Close()
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(b.Bytes()[:b.Len()-cut])
	}
}
