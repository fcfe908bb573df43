//go:build unix

package main

import (
	"regexp"
	"strconv"
)

// Counts is what the judge finds in a topic.
type Counts struct {
	Messages   int
	Lost       int // entries without any message
	EditsLost  int // entries whose last message does not have their newest version
	Twice      int // messages with a version that an earlier message had
	OutOfOrder int // messages with a version that the feed had before that of an earlier message
}

var title = regexp.MustCompile(`Order (\d+) version (\d+) position (\d+)`)

// judge compares the messages of a topic with the history of the feed. Older versions of an edited
// entry may be missing: the current document has the newest only, as in any feed.
func judge(history []version, messages [][]byte) Counts {
	counts := Counts{Messages: len(messages)}
	copied := map[int]bool{} // by position
	final := map[int]int{}   // of each entry, the number in its last message
	last := -1
	for _, message := range messages {
		fields := title.FindSubmatch(message)
		if fields == nil {
			continue
		}
		entry, number, position := atoi(fields[1]), atoi(fields[2]), atoi(fields[3])
		switch {
		case copied[position]:
			counts.Twice++
		case position < last:
			counts.OutOfOrder++
		}
		copied[position] = true
		final[entry] = number
		last = max(last, position)
	}
	want := map[int]int{}
	for _, v := range history {
		want[v.entry] = v.number
	}
	for entry, number := range want {
		switch final[entry] {
		case number:
		case 0:
			counts.Lost++
		default:
			counts.EditsLost++
		}
	}
	return counts
}

func atoi(digits []byte) int {
	n, _ := strconv.Atoi(string(digits))
	return n
}
