package nats

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/sink"
)

// scope has the subjects of some requests. All feeds of a bus share a connection, and the server
// reports what it has refused to the connection, without an answer to the request.
type scope struct {
	publish []string // the subjects of messages
	stream  string   // of requests to JetStream; empty if it is not known
}

// topicScope returns the scope of requests about a topic.
func topicScope(subject, stream string) scope {
	return scope{[]string{subject, subject + sink.DeadSuffix, checkpointPrefix + subject}, stream}
}

// allCheckpoints are the subjects of the checkpoints of all topics.
const allCheckpoints = checkpointPrefix + ">"

// isRefusedWatch reports whether the server has refused the subscription to the checkpoints.
func isRefusedWatch(err error) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+allCheckpoints+`"`)
}

var refusedPublish = regexp.MustCompile(`Publish to "(\S+)"`)

// includes reports whether a permissions violation may be about a request of the scope. api is the
// prefix of requests to JetStream. A subscription, except that of the watch, is for the answers to
// all requests.
func (s scope) includes(violation error, api string) bool {
	if isRefusedWatch(violation) {
		return false
	}
	m := refusedPublish.FindStringSubmatch(violation.Error())
	if m == nil || slices.Contains(s.publish, m[1]) {
		return true
	}
	name, request := strings.CutPrefix(m[1], api)
	if !request && !strings.HasPrefix(name, "$") { // such as $JS.ACK
		return false
	}
	return s.stream == "" || slices.Contains(strings.Split(name, "."), s.stream) || name == "INFO" || name == "STREAM.NAMES"
}

// violations has the newest permissions violations of a connection, because the connection keeps
// only its last error. It is safe for concurrent use.
type violations struct {
	mu     sync.Mutex
	count  int // of all
	newest []error
}

// maxViolations limits the memory of violations.
const maxViolations = 100

func (v *violations) add(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count++; len(v.newest) == maxViolations {
		v.newest = slices.Delete(v.newest, 0, 1)
	}
	v.newest = append(v.newest, err)
}

// counted returns the number of violations so far.
func (v *violations) counted() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count
}

// after returns the violations after the first n, oldest first. Older ones may be missing.
func (v *violations) after(n int) []error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.newest[max(0, len(v.newest)-(v.count-n)):])
}
