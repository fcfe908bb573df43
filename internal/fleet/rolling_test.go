package fleet

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// During a rolling upgrade the members of both builds compute the same owners from what the others publish. So the
// values in testdata, which v0.1.0 published with a note and a field of a later build, and the owners that it
// computed, are never changed: with another hash, a topic would have two owners or none while both builds run.
func TestMembersOfOtherBuildsComputeTheSameOwners(t *testing.T) {
	text, err := os.ReadFile("testdata/v0.1.0.txt")
	must.Succeed(t, err)
	stored, owners, _ := strings.Cut(string(text), "\n\n")
	values := map[string][]byte{}
	for line := range strings.SplitSeq(stored, "\n") {
		name, value, _ := strings.Cut(line, " ")
		values[name] = []byte(value)
	}
	var topics []string
	for i := range 12 {
		topics = append(topics, fmt.Sprintf("shop.topic-%d", i))
	}
	r := newRoster("a")
	r.setTopics(NewTopics(topics), nil)
	n := notes{seen: map[string]Seen{}}
	cores, _ := n.take(values, nil, time.Unix(0, 0))
	if strangers := r.report(cores, nil, time.Unix(0, 0)); len(strangers) > 0 {
		t.Fatalf("the values of %v are not read", strangers)
	}
	must.Match(t, "the note of b", `{"x":1}`, string(n.seen["b"].Note))
	assignment, ok := r.next(time.Unix(0, 0).Add(joinTime))
	if !ok || len(assignment.Different) > 0 {
		t.Fatalf("no assignment, or members with other feeds: %+v", assignment)
	}
	got := ""
	for _, topic := range topics {
		got += topic + " " + assignment.Owner(topic) + "\n"
	}
	must.Match(t, "the owners", owners, got)
}
