package serve

import (
	"iter"
	"strconv"
	"strings"
)

// acceptedItems returns the items of an Accept or Accept-Encoding (RFC 9110, section 12.5),
// in lower case, with their weights. A weight that is no number is 0.
func acceptedItems(fields []string) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for item := range strings.SplitSeq(strings.ToLower(strings.Join(fields, ",")), ",") {
			name, params, _ := strings.Cut(item, ";")
			weight := 1.0
			for param := range strings.SplitSeq(params, ";") {
				key, value, _ := strings.Cut(param, "=")
				if strings.TrimSpace(key) != "q" {
					continue
				}
				var err error
				if weight, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
					weight = 0
				}
			}
			if !yield(strings.TrimSpace(name), weight) {
				return
			}
		}
	}
}
