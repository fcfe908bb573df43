package limit

import "time"

// Starts is the number of feeds that start in a second, or go on after an outage of their bus: 10,000
// need 67 seconds. The other numbers are above what this rate needs while buses and upstreams answer,
// so they delay a start only if those are slow.
const Starts = 150

// HostStarts is how many feeds of a host start without a wait for each other: the feeds of a person who tries
// the program.
const HostStarts = 10

const (
	// Starting limits the feeds of a process that start at a time: their first steps.
	Starting = 400
	// SlowStart is the slow time of a start. The feed may have a backlog of hours, or a server that does
	// not answer.
	SlowStart = 5 * time.Second
	// SlowFirstCommit is the same for a feed that makes its first commit. The bus may need seconds for
	// the commits of all feeds that start, and more feeds would only wait for it as well. It may also
	// not answer, and others may have another bus.
	SlowFirstCommit = 30 * time.Second
)

const (
	// OnBus limits how many feeds resume, and how many commit, at the same time over the connection
	// to a bus. Ten thousand that resume would overrun the queue of requests that all clients of a NATS
	// server share, and the server would drop those of others too. A stream of NATS stores one commit
	// after the other, so most of ten thousand commits would reach their timeout.
	OnBus = 64
	// SlowOnBus is the slow time of a request to a bus. Otherwise topics whose broker does not answer
	// would stop all others of the bus.
	SlowOnBus = 5 * time.Second
)

// Batches limits the atomic batches that one connection sends to a stream of NATS at a time. A server has
// at most 50 incomplete batches in a stream, and drops those beyond: their commits fail. So five copies
// with many feeds in one stream can start together.
const Batches = 10

// Looks limits the streams that one connection to NATS looks at at a time, as OnBus limits resumes.
const Looks = 64

// PagesOfHost limits the pages that all feeds of a process request ahead from one host at a time,
// so that its connections can be reused.
const PagesOfHost = 16

const (
	// PageBuilds limits the pages of served feeds that are built or compressed at a time. Each takes up to
	// twice the memory of the largest page that is cached.
	PageBuilds = 4
	// SnapshotBuilds limits the snapshots of served feeds that are built at a time. Each takes memory for its
	// keys, and those of all feeds are due at the same moments.
	SnapshotBuilds = 1
	// Renders limits the live status pages that are rendered at a time, so that all of them take no more than
	// a core.
	Renders = 1
)
