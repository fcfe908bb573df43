// Package connlimit bounds how many clients may use a resource at a time, such
// as the connections of an HTTP server, and keeps slow and idle clients from
// holding it.
//
// [Slots] is the bound: when all slots are taken, the client that has kept the
// program waiting longest loses its slot to the next one. [Listener] gives every
// accepted connection a slot. The servers of feeds and of health and status both
// use it.
package connlimit
