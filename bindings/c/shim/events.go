package main

/*
#include <stdlib.h>
#include <polylatch.h>

extern void shimHears(void *user, char *event, char *json);
*/
import "C"

import (
	"encoding/json"
	"sync"
	"unsafe"
)

// event is what a scenario wants to know of one.
type event struct {
	Event string `json:"event"`
	Level string `json:"level"`
	Lock  string `json:"lock"`
}

// events are those that callbacks were given, by the pointer that was given for the callback.
type events struct {
	sync.Mutex
	heard map[unsafe.Pointer][]event
}

var heard = events{heard: map[unsafe.Pointer][]event{}}

//export shimHears
func shimHears(user unsafe.Pointer, _ *C.char, text *C.char) {
	var one event
	if json.Unmarshal([]byte(C.GoString(text)), &one) != nil {
		one = event{Event: "an event that is no JSON"}
	}
	heard.Lock()
	defer heard.Unlock()
	heard.heard[user] = append(heard.heard[user], one)
}

// connect connects a client whose events are kept. The pointer for its callback lives as long as the process.
func connect(url *C.char, client **C.PlClient, err **C.PlError) (unsafe.Pointer, bool) {
	user := C.malloc(1)
	onEvent := C.PlOnEvent(unsafe.Pointer(C.shimHears))
	return user, C.pl_connect_with_events(url, nil, nil, onEvent, user, nil, client, err) == C.PL_OK
}

// of returns level and name of the events of a lock so far.
func (e *events) of(user unsafe.Pointer, lock string) []string {
	e.Lock()
	defer e.Unlock()
	told := []string{}
	for _, one := range e.heard[user] {
		if one.Lock == lock {
			told = append(told, one.Level+" "+one.Event)
		}
	}
	return told
}

// stats returns what a client has counted.
func stats(client *C.PlClient) (any, error) {
	var text *C.char
	var err *C.PlError
	if C.pl_client_stats(client, &text, &err) != C.PL_OK {
		return nil, told(err)
	}
	var counts map[string]any
	if err := parsed(text, &counts); err != nil {
		return nil, err
	}
	losses := 0.0
	reasons, _ := counts["losses"].(map[string]any)
	for _, count := range reasons {
		count, _ := count.(float64)
		losses += count
	}
	counts["losses"] = losses
	return counts, nil
}
