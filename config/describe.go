package config

import (
	"regexp"
	"strings"
)

// An option describes one setting for the people who set it. docs/configuration.md
// and the descriptions of the JSON Schema are generated from it.
type option struct {
	// text describes the setting in a sentence or two, in Markdown. Links are relative
	// to docs/.
	text string
	// preset names the default if that is not a constant: "required", or how it is
	// derived. Empty means that the default is the constant in [spec.preset], or that
	// there is none.
	preset string
	// least and most bound a whole number, for errors and for the JSON Schema; most is 0 if it has
	// no upper bound. The check itself is that of the package which the setting is for.
	least, most int
}

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plainText returns the text without Markdown, for the JSON Schema.
func (o option) plainText() string {
	text := markdownLink.ReplaceAllString(o.text, "$1")
	return strings.ReplaceAll(text, "`", "")
}

// options has an entry for the path of every setting, as spec.path writes it. It is one
// table because many settings share a struct and mean something else in each place.
var options = map[string]option{
	"data_dir":          {text: "Directory of the embedded bus; its streams are in `jetstream` below it."},
	"log.level":         {text: "Lowest level that is logged."},
	"log.format":        {text: "`auto` is text on a terminal and JSON otherwise."},
	"secret_parameters": {text: "Additional query parameters of URLs whose values are replaced by `***`; see [Secrets](#secrets)."},
	"grace":             {text: "Limit for a stop, which waits for pending commits. The supervisor (systemd, Kubernetes) needs a longer one."},
	"memory":            {text: "Limit for what all feeds together hold of entities and documents that are being read or are not published yet, at least 524288. One feed holds at most an eighth of it, and a commit half of that; see [Sizing](scaling.md#sizing)."},
	"admin.listen":      {text: "Address of the status pages, health, metrics and status, which have no password. `off`, or an empty variable, disables it. It is read-only unless there is a token; see [Admin server](operations.md#admin-server)."},
	"admin.socket":      {text: "Path of a Unix socket for the same server, with mode 0600. Commands such as `feedbridge reload` use it without a token."},
	"admin.token":       {text: "Token for changes at `admin.listen`, which commands such as `feedbridge reload` send. At least 16 characters. A file is read for every change."},
	"admin.hosts":       {text: "Names in the public DNS by which clients may reach `admin.listen`; see [Admin server](operations.md#admin-server)."},
	"metrics.per_feed":  {text: "Metrics that have a series for each feed: all of them, the few in the [core](metrics-and-alerts.md#series-per-feed), or none. Counters and histograms without them are sums over all feeds."},

	"fleet.name": {text: "Name of the fleet. Copies with the same name and bus share the feeds; each feed is run by one of them. See [Fleet](scaling.md#fleets).", preset: "required"},
	"fleet.bus":  {text: "Bus by which the copies find each other; not an embedded one.", preset: "the only bus"},

	"buses.*.nats.url":              {text: "One server, or several of one system separated by commas: `nats://`, `tls://`, `ws://`, `wss://`.", preset: "required"},
	"buses.*.nats.credentials_file": {text: "A `.creds` file. Set at most one of `credentials_file`, `nkey_file`, `username` and `token`."},
	"buses.*.nats.nkey_file":        {text: "A file with an nkey seed."},
	"buses.*.nats.username":         {text: "User name."},
	"buses.*.nats.password":         {text: "Password of the user. A file is read again at every connect."},
	"buses.*.nats.token":            {text: "Token. A file is read again at every connect."},
	"buses.*.nats.tls.cert_file":    {text: "Client certificate (PEM), read again at every handshake."},
	"buses.*.nats.tls.key_file":     {text: "Private key of the client certificate."},
	"buses.*.nats.tls.ca_file":      {text: "Certificate authorities (PEM) to trust instead of the system's, read at the start and by a reload."},
	"buses.*.nats.tls.first":        {text: "TLS handshake before the server's greeting, for servers with `handshake_first`."},
	"buses.*.nats.inbox_prefix":     {text: "Prefix of reply subjects instead of `_INBOX`, for users that may subscribe only to their own."},
	"buses.*.nats.domain":           {text: "JetStream domain of the streams, if it is not the server's own; see [Leaf nodes](nats.md#leaf-nodes)."},
	"buses.*.nats.api_prefix":       {text: "Prefix of the JetStream API instead of `$JS.API`, for an account that imports the API of another account. Excludes `domain`."},
	"buses.*.nats.timeout":          {text: "Limit for connecting and for each request. The acknowledgement of a commit may take three times as long."},

	"buses.*.kafka.brokers":                   {text: "Brokers to connect to first (`host:port`); the cluster names the others.", preset: "required"},
	"buses.*.kafka.client_id":                 {text: "Client ID that brokers log and apply quotas to. With a dot behind it, it is the prefix of transactional IDs, so it is the same for all copies; see [Transactions](kafka.md#transactions)."},
	"buses.*.kafka.tls.enabled":               {text: "Use TLS with the system's certificate authorities. Each of the other `tls` keys enables TLS too."},
	"buses.*.kafka.tls.cert_file":             {text: "Client certificate (PEM), read again at every handshake."},
	"buses.*.kafka.tls.key_file":              {text: "Private key of the client certificate."},
	"buses.*.kafka.tls.ca_file":               {text: "Certificate authorities (PEM) to trust instead of the system's, read at the start and by a reload."},
	"buses.*.kafka.tls.server_name":           {text: "Host name in the brokers' certificates, if it differs from the hosts in `brokers`."},
	"buses.*.kafka.sasl.mechanism":            {text: "SASL mechanism. Without it the connection is not authenticated by SASL."},
	"buses.*.kafka.sasl.username":             {text: "User name for PLAIN and SCRAM."},
	"buses.*.kafka.sasl.password":             {text: "Password for PLAIN and SCRAM. A file is read again at every connect."},
	"buses.*.kafka.sasl.token":                {text: "For OAUTHBEARER: the token. A file is read again at every connect."},
	"buses.*.kafka.sasl.oauth2.token_url":     {text: "For OAUTHBEARER: token endpoint (client credentials grant)."},
	"buses.*.kafka.sasl.oauth2.client_id":     {text: "OAuth2 client ID."},
	"buses.*.kafka.sasl.oauth2.client_secret": {text: "OAuth2 client secret. A file is read for every token."},
	"buses.*.kafka.sasl.oauth2.scopes":        {text: "OAuth2 scopes to request."},
	"buses.*.kafka.sasl.access_key":           {text: "AWS access key ID for AWS_MSK_IAM.", preset: "`AWS_ACCESS_KEY_ID`"},
	"buses.*.kafka.sasl.secret_key":           {text: "AWS secret access key for AWS_MSK_IAM.", preset: "`AWS_SECRET_ACCESS_KEY`"},
	"buses.*.kafka.sasl.session_token":        {text: "AWS session token for AWS_MSK_IAM.", preset: "`AWS_SESSION_TOKEN`"},
	"buses.*.kafka.timeout":                   {text: "Limit for connecting, for each request, and for waiting on open transactions, from 1s to 5m. A commit may take three times as long. The cluster aborts the transaction of a copy that died after six times as long, but at most 15m."},
	"buses.*.kafka.compression":               {text: "Compression of messages."},
	"buses.*.kafka.checkpoints":               {text: "The compacted topic for the checkpoints of all feeds, the same for all copies; see [Topics](kafka.md#topics)."},

	"buses.*.embedded.listen": {text: "Client address of the embedded NATS server. It has no password: every client that reaches it can read and write."},

	"feeds.*.url":                       {text: "URL of the feed's newest page. Its scheme, host and port are the origin, the only destination of headers and credentials.", preset: "required"},
	"feeds.*.headers":                   {text: "Headers (`Name: value`) sent with every request to the origin. `Accept-Encoding: identity` disables compression."},
	"feeds.*.auth.bearer":               {text: "Token for `Authorization: Bearer`. Set at most one of `bearer`, `basic` and `oauth2`. A file is read for every request."},
	"feeds.*.auth.basic.username":       {text: "User name for `Authorization: Basic`."},
	"feeds.*.auth.basic.password":       {text: "Password of the user."},
	"feeds.*.auth.oauth2.token_url":     {text: "OAuth2 token endpoint (client credentials grant)."},
	"feeds.*.auth.oauth2.client_id":     {text: "OAuth2 client ID."},
	"feeds.*.auth.oauth2.client_secret": {text: "OAuth2 client secret. A file is read for every token."},
	"feeds.*.auth.oauth2.scopes":        {text: "OAuth2 scopes to request."},
	"feeds.*.auth.tls.cert_file":        {text: "Client certificate (PEM) for the origin and the token endpoint, read again at every handshake."},
	"feeds.*.auth.tls.key_file":         {text: "Private key of the client certificate."},
	"feeds.*.auth.tls.ca_file":          {text: "Certificate authorities (PEM) to trust instead of the system's, read at the start and by a reload."},
	"feeds.*.allow_hosts":               {text: "Other hosts (`host` or `host:port`) that links and redirects may lead to. They get neither headers nor credentials."},
	"feeds.*.timeouts.connect":          {text: "Limit for name resolution, connection and TLS handshake."},
	"feeds.*.timeouts.read":             {text: "Limit from the connection to the end of the response's header, and then between two reads of the body. The whole body may take any time."},
	"feeds.*.limits.page":               {text: "Largest page, compressed and decompressed. Pages are streamed, never held in memory as a whole."},
	"feeds.*.limits.entity":             {text: "Largest entity, body and headers."},
	"feeds.*.limits.rate":               {text: "Requests per second to one host, HEAD and GET. Feeds with the same number share the limit."},
	"feeds.*.format":                    {text: "Format of the feed. `auto` detects it on the first poll and records it in the checkpoint; see [Format detection](atom-and-rss.md#format-detection)."},
	"feeds.*.every":                     {text: "Wait between polls that find nothing new, ± 10%; at least 100ms."},
	"feeds.*.start":                     {text: "Where reading starts if the topic has no checkpoint: `beginning`, `now` or a time; for datareplication also `id:<content-id>@<time>` and [`snapshot:<url>`](datareplication.md#starting-with-a-snapshot)."},
	"feeds.*.gap":                       {text: "Datareplication: what to do when the feed no longer has the position that was reached; see [Gaps](datareplication.md#gaps)."},
	"feeds.*.dedupe_window":             {text: "Datareplication: how many of the topic's newest Content-IDs are kept in memory to drop entities that the feed repeats, from 1 to 10000000. On NATS, entities that a torn commit would repeat are kept beside it. (For Atom and RSS all are kept.)", least: 1, most: 10_000_000},
	"feeds.*.freshness":                 {text: "`/readyz` fails if the feed has not been copied for longer. If the feed asked for a longer wait than `every`, the time counts from the end of that wait.", preset: "5m, or 3 × `every` if longer"},
	"feeds.*.oversize":                  {text: "For an entity that is too large for the bus, and for one of Atom or RSS above `limits.entity`: `stop` publishes all entities before it and halts, `skip` drops, counts and logs it, `dead-letter` publishes it to `TOPIC.dead`, where entities go, too, that have a header that the bus cannot carry."},
	"feeds.*.key":                       {text: "Kafka: where the record key is in an entity, in its body (`/id`) or its headers (`header:NAME`); see [Keys and partitions](kafka.md#keys-and-partitions)."},

	"feeds.*.dialect":           {text: "How the feed links its older documents; see [Feed types](atom-and-rss.md#feed-types)."},
	"feeds.*.entry_order":       {text: "Order of the entries in a document. `auto` compares their update times, or else their dates of publication, and assumes `newest_first` if they give no order; `updated` sorts by update time."},
	"feeds.*.mode":              {text: "`poll` requests the newest document and reads back from there. `tail` reads forwards and requests the last page again, for feeds whose pages only grow; it needs the `dialect` `kurrent`, `ict4h` or `atomhopper`."},
	"feeds.*.ignore_changes_in": {text: "Elements of an entry, at any depth, whose change does not count as a change of the entry: `viewers`, or `{namespace}viewers`. The counters media:statistics, media:starRating, slash:comments and thr:total never count."},
	"feeds.*.max_delete_ratio":  {text: "Part of a complete feed of 20 entries or more that may vanish at once (0 to 1, where 1 disables the check); see [Held deletes](atom-and-rss.md#held-deletes)."},
	"feeds.*.full_every":        {text: "How long \"not modified\" is trusted, and how often all pages of a paged feed are read."},
	"feeds.*.hints":             {text: "Whether the feed's own polling hints can lengthen `every`; see [Polling](atom-and-rss.md#polling)."},
	"feeds.*.identity":          {text: "What identifies an entry: `guid` (or `atom:id`), `link`, or a hash of the `content`; see [Identity](atom-and-rss.md#identity). A change publishes the entries again under their new IDs."},
	"feeds.*.lenient":           {text: "Whether documents that are not well-formed are repaired. `auto` does so for window and paged feeds; complete feeds are always read strictly. See [Broken documents](atom-and-rss.md#broken-documents)."},

	"feeds.*.to.bus":               {text: "Name of the bus.", preset: "the only bus"},
	"feeds.*.to.trace_header":      {text: "Adds a header `traceparent` to every message while [traces](operations.md#traces) are sent: the trace in which the entity was read."},
	"feeds.*.to.topic":             {text: "Topic, on NATS a subject. It belongs to this feed only, unless it is a shared Kafka topic.", preset: "the feed's name"},
	"feeds.*.to.stream.name":       {text: "NATS: name of the JetStream stream.", preset: "the topic, with `_` for dots"},
	"feeds.*.to.stream.create":     {text: "NATS: whether to create the stream if it is missing. An existing stream is never changed."},
	"feeds.*.to.stream.replicas":   {text: "NATS: replicas of a stream that is created, from 1 to 5.", least: 1, most: 5},
	"feeds.*.to.stream.max_age":    {text: "NATS: age limit of a stream that is created; see [Retention](nats.md#retention).", preset: "`0s`: no limit"},
	"feeds.*.to.stream.max_bytes":  {text: "NATS: size limit of a stream that is created.", preset: "`0`: no limit"},
	"feeds.*.to.kafka.create":      {text: "Kafka: whether to create the topic, and the topic for checkpoints, if they are missing. Existing topics are never changed."},
	"feeds.*.to.kafka.partitions":  {text: "Kafka: partitions of a topic that is created."},
	"feeds.*.to.kafka.replication": {text: "Kafka: replication factor of topics that are created, the one for checkpoints included.", preset: "`0`: the cluster's"},
	"feeds.*.to.kafka.config":      {text: "Kafka: settings (`name=value`) of a topic that is created. In a variable, items are separated by line ends.", preset: "`retention.ms=-1`, unless named"},
	"feeds.*.to.kafka.shared":      {text: "Kafka: allow [several feeds in the topic](kafka.md#several-feeds-in-one-topic). Each of them must set it."},
	"feeds.*.to.kafka.partition":   {text: "Kafka: partition of entities without a key."},
	"feeds.*.to.kafka.delete":      {text: "Kafka: publish a DELETE as an ordinary message, or as a null value under its key; see [Deletes and compaction](kafka.md#deletes-and-compaction)."},
	"feeds.*.to.kafka.missing_key": {text: "Kafka: for an entity without a key where `key` points: halt, publish it with a null key, or publish it to `TOPIC.dead` (`dead-letter`). In YAML write `\"null\"`."},

	"serve.listen":                      {text: "Address where feeds are served."},
	"serve.tls.cert_file":               {text: "Server certificate (PEM), read again when it changes. Without it the server speaks plain HTTP."},
	"serve.tls.key_file":                {text: "Private key of the certificate."},
	"serve.connections":                 {text: "How many clients may be connected at a time; see [Slow clients](scaling.md#slow-clients)."},
	"serve.memory":                      {text: "Memory for cached pages, those being sent included; see [Serving](scaling.md#serving)."},
	"serve.feeds.*.from.bus":            {text: "Name of the bus.", preset: "the only bus"},
	"serve.feeds.*.from.topic":          {text: "Topic, on NATS the subject.", preset: "NAME"},
	"serve.feeds.*.from.stream":         {text: "NATS: the stream.", preset: "the one with the subject"},
	"serve.feeds.*.from.partition":      {text: "Kafka: the partition. A served feed is one partition."},
	"serve.feeds.*.format":              {text: "Format of the served feed. Atom and RSS are archived feeds (RFC 5005)."},
	"serve.feeds.*.page_size":           {text: "Positions of the topic per page, from 1 to 10000. Pages of the old size stay valid after a change.", preset: "`500`, in Atom and RSS `100`"},
	"serve.feeds.*.public_url":          {text: "URL of the feed as clients see it, without `/latest`, if there is a proxy or a [shared cache](serving.md#links-and-shared-caches) in front.", preset: "relative links, or the host of the request"},
	"serve.feeds.*.title":               {text: "Title of the feed in Atom and RSS.", preset: "NAME"},
	"serve.feeds.*.auth.bearer":         {text: "Token that clients must send. Set `bearer` or `basic`, or none, and use TLS. A file is read for every request."},
	"serve.feeds.*.auth.basic.username": {text: "User name that clients must send."},
	"serve.feeds.*.auth.basic.password": {text: "Password of the user."},
	"serve.feeds.*.snapshot.every":      {text: "Interval of [snapshots](serving.md#snapshots): `1h` is every full hour, `24h` every midnight in UTC.", preset: "`0s`: no snapshots"},
	"serve.feeds.*.snapshot.key":        {text: "Where a message has the key of the thing that it describes, as for `feeds.NAME.key`; the newest message of each key counts. See [The key](serving.md#the-key).", preset: "the Content-ID"},
}

// groups has the description of every key that only contains other keys, by its path as
// spec.path writes it. It is for the JSON Schema, and has no Markdown.
var groups = map[string]string{
	"fleet":                     "Copies that share the feeds. Without it every copy runs every feed.",
	"admin":                     "HTTP server for health checks, metrics and status.",
	"metrics":                   "Metrics for Prometheus at the admin server.",
	"log":                       "Level and format of the log.",
	"buses":                     "Buses by name. Without any, an embedded NATS server is used.",
	"buses.*":                   "A bus: exactly one of nats, kafka and embedded.",
	"buses.*.nats":              "Connection to a NATS system with JetStream.",
	"buses.*.nats.tls":          "TLS with the NATS servers.",
	"buses.*.kafka":             "Connection to a Kafka cluster.",
	"buses.*.kafka.tls":         "TLS with the brokers.",
	"buses.*.kafka.sasl":        "Authentication by SASL.",
	"buses.*.kafka.sasl.oauth2": "For OAUTHBEARER: tokens from a token endpoint.",
	"buses.*.embedded":          "NATS server inside feedbridge, which stores its streams below data_dir.",
	"feeds":                     "Feeds to copy, by name.",
	"feeds.*":                   "A feed and the topic that it is copied to.",
	"feeds.*.auth":              "Credentials that are sent to the feed's origin.",
	"feeds.*.auth.basic":        "User name and password.",
	"feeds.*.auth.oauth2":       "Tokens from a token endpoint (client credentials grant).",
	"feeds.*.auth.tls":          "TLS with the feed's origin.",
	"feeds.*.timeouts":          "Time limits of requests to the feed.",
	"feeds.*.limits":            "Limits for responses and the request rate.",
	"feeds.*.to":                "Destination: a topic on a bus.",
	"feeds.*.to.stream":         "NATS: the stream of the topic.",
	"feeds.*.to.kafka":          "Kafka: creation and form of the topic.",
	"serve":                     "HTTP server that serves topics as feeds.",
	"serve.tls":                 "Certificate of the server.",
	"serve.feeds":               "Served feeds by name. The name is part of the URL, /feeds/NAME/latest.",
	"serve.feeds.*":             "A topic that is served as a feed.",
	"serve.feeds.*.from":        "The topic.",
	"serve.feeds.*.auth":        "Credentials that clients must send. Without them everyone can read the feed.",
	"serve.feeds.*.auth.basic":  "User name and password.",
	"serve.feeds.*.snapshot":    "Snapshots of the topic's state.",
}
