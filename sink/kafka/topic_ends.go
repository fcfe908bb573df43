package kafka

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// topicEnds are offsets that the partitions of a topic have reached, at least, in their order. There
// may be fewer than partitions, or none.
type topicEnds struct {
	id   string // the topic's, empty if it is unknown
	ends []int64
}

// isOf reports whether the ends are those of the topic with the id, as far as is known.
func (e topicEnds) isOf(id kadm.TopicID) bool {
	text := idText(id)
	return e.id == "" || text == "" || e.id == text
}

// of returns the ends if they are those of d, as far as is known; none if d is another topic, or does
// not exist.
func (e topicEnds) of(d kadm.TopicDetail) []int64 {
	if len(d.Partitions) == 0 || !e.isOf(d.ID) {
		return nil
	}
	return e.ends
}

// endsAfter returns the ends once records that end at written are committed, by partition.
func (e topicEnds) endsAfter(written map[int32]kadm.Offset) topicEnds {
	e.ends = slices.Clone(e.ends)
	for partition, end := range written {
		for int(partition) >= len(e.ends) {
			e.ends = append(e.ends, 0) // of a partition that was added since
		}
		e.ends[partition] = max(e.ends[partition], end.At)
	}
	return e
}

// maxEnds is the largest header of ends in bytes, so that those of a topic with very many
// partitions do not fill the record. Losses in the partitions that are left out go unnoticed.
const maxEnds = 128 << 10

func appendEnds(text []byte, ends []int64) []byte {
	for i, n := range ends {
		fits := text
		if i > 0 {
			text = append(text, ',')
		}
		if text = strconv.AppendInt(text, n, 10); len(text) > maxEnds {
			return fits
		}
	}
	return text
}

// parseEnds returns what appendEnds wrote, and none of it if some cannot be read: a later
// version may write another form.
func parseEnds(text string) []int64 {
	var ends []int64
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 {
			return nil
		}
		ends = append(ends, n)
	}
	return ends
}

// idText returns a topic's id as Kafka's tools show it; empty if the cluster gives
// none.
func idText(id kadm.TopicID) string {
	if id == (kadm.TopicID{}) {
		return ""
	}
	return id.String()
}
