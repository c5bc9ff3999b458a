------------------------------ MODULE sessions ------------------------------
(* One session for the tasks of a worker (J1 to J5 of protocol.md). Task t reads partition t, with the messages 1..N, and
   keeps its records in backing partition t. A session goes by the id of one task of its worker, and its transaction has
   records of several tasks. Workers die, are expelled without noticing, give one task back, and lose or delay the end of
   a transaction. Workers in Former have a session for each task, under the id of that task.

   Taken as given, as in worker.tla: a transaction is ended for all its records and offsets or for none; requests of an
   older epoch of an id are refused. So `holder` of an id is who initialised it last. The request for offsets checks that
   the worker is a member, not what it owns. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Workers, Former, Nobody, Tasks, N,
          Faults,    \* that may happen, of all kinds together
          Without    \* rules that are switched off

VARIABLES
  task,              \* by worker and task: where it is and what it believes
  session,           \* by worker: the id, whether it is live, what it does, the tasks in its transaction
  members, owner,    \* the group: who is in it, who was given each task
  holder, txn,       \* by id, at the coordinator: the newest session; "none", "open", or being ended: "commit", "abort"
  late,              \* EndTxn requests of the newest epoch of an id that are still under way
  log, out,          \* by task: records with their mark and the id of their transaction
  offset, pending,   \* by task: the group's offset; by id and task: what it becomes; N + 1: nothing is pending
  faults             \* that may still happen
vars == <<task, session, members, owner, holder, txn, late, log, out, offset, pending, faults>>
group == <<members, owner>>
coordinator == <<holder, txn, late>>
partitions == <<log, out, offset, pending>>
workers == <<task, session>>

Rule(name) == name \notin Without
Fault == faults > 0 /\ faults' = faults - 1
NoFault == faults' = faults
Nothing == N + 1

NoRecord == [seq |-> 0, pos |-> 0]
Away == [pc |-> "away", hw |-> 0, last |-> NoRecord, new |-> NoRecord]
Recovering == [Away EXCEPT !.pc = "init"]
NoId == 0
NoSession == [id |-> NoId, live |-> FALSE, pc |-> "idle", inside |-> {}]

Init == /\ task = [w \in Workers |-> [t \in Tasks |-> Away]] /\ session = [w \in Workers |-> NoSession]
        /\ members = Workers /\ owner = [t \in Tasks |-> Nobody]
        /\ holder = [t \in Tasks |-> Nobody] /\ txn = [t \in Tasks |-> "none"] /\ late = {}
        /\ log = [t \in Tasks |-> <<>>] /\ out = [t \in Tasks |-> <<>>]
        /\ offset = [t \in Tasks |-> 0] /\ pending = [k \in Tasks |-> [t \in Tasks |-> Nothing]] /\ faults = Faults

At(w, t, pc) == task[w][t].pc = pc
Here(w) == {t \in Tasks : ~At(w, t, "away")}
Put(w, t, state) == task' = [task EXCEPT ![w][t] = state]
Current(w) == LET s == session[w] IN s.live /\ holder[s.id] = w
Answers(k) == txn[k] \in {"none", "open"}
Member(w) == w \in members \/ ~Rule("generation check")
Committed(records) == SelectSeq(records, LAMBDA r : r.mark = "commit")
Newest(records) == LET c == Committed(records) IN IF c = <<>> THEN NoRecord ELSE c[Len(c)].record

(* What is left of a session and its tasks when its transaction fails (P8, J4). Its abort comes at once, later, or never. *)
Failed(tasks, inside) == [t \in Tasks |-> IF t \in inside /\ tasks[t].pc # "away" THEN Recovering ELSE tasks[t]]
Aborting(w) == IF Current(w) THEN late \cup {<<session[w].id, "abort">>} ELSE late
Dropped(s) == [s EXCEPT !.live = FALSE, !.pc = "idle", !.inside = {}]
Discard(w) == /\ task' = [task EXCEPT ![w] = Failed(task[w], session[w].inside)]
              /\ session' = [session EXCEPT ![w] = Dropped(@)] /\ late' = Aborting(w) /\ UNCHANGED <<holder, txn>>

\* ---- The group ----
Assign(w, t) == /\ w \in members /\ owner[t] \in {w, Nobody} /\ At(w, t, "away") /\ owner' = [owner EXCEPT ![t] = w]
                /\ Put(w, t, Recovering) /\ NoFault /\ UNCHANGED <<session, members, coordinator, partitions>>
Empty(w) == /\ task' = [task EXCEPT ![w] = [t \in Tasks |-> Away]] /\ session' = [session EXCEPT ![w] = NoSession]
Rejoin(w) == /\ w \notin members /\ members' = members \cup {w} /\ Empty(w) /\ late' = Aborting(w)
             /\ NoFault /\ UNCHANGED <<owner, holder, txn, partitions>>
Expel(w) == /\ w \in members /\ members' = members \ {w}
            /\ owner' = [t \in Tasks |-> IF owner[t] = w THEN Nobody ELSE owner[t]]
            /\ Fault /\ UNCHANGED <<workers, coordinator, partitions>>
Die(w) == Here(w) # {} /\ Empty(w) /\ Fault /\ UNCHANGED <<group, coordinator, partitions>>
(* A3, J5: a task is given back outside of a transaction, or the transaction is thrown away first. The session is over
   when the task of its id goes: then the id is initialised once more, which waits for the markers of the last one. *)
Revoke(w, t) ==
  LET s == session[w] gone == [task[w] EXCEPT ![t] = Away] IN
  /\ owner[t] = w /\ w \in members /\ ~At(w, t, "away") /\ owner' = [owner EXCEPT ![t] = Nobody]
  /\ IF s.id = t /\ Rule("id of an own task")
     THEN /\ session' = [session EXCEPT ![w] = NoSession] /\ late' = Aborting(w)
          /\ Rule("markers of the former id") => Answers(t)
          /\ task' = [task EXCEPT ![w] = Failed(gone, s.inside)]
     ELSE IF t \in s.inside /\ Rule("stop before giving back")
     THEN /\ session' = [session EXCEPT ![w] = Dropped(s)] /\ late' = Aborting(w)
          /\ task' = [task EXCEPT ![w] = Failed(gone, s.inside)]
     ELSE /\ task' = [task EXCEPT ![w][t] = IF t \in s.inside THEN @ ELSE Away] /\ UNCHANGED <<session, late>>
  /\ Fault /\ UNCHANGED <<members, holder, txn, partitions>>

\* ---- Recovery ----
InitOf(w, k, done) ==    \* R1 of an id: ends what is open; answers once the markers are there
  /\ Answers(k) /\ (IF w \in members THEN NoFault ELSE Fault) /\ late' = {l \in late : l[1] # k}
  /\ IF txn[k] = "open" THEN /\ txn' = [txn EXCEPT ![k] = "abort"] /\ holder' = [holder EXCEPT ![k] = Nobody]
                             /\ UNCHANGED workers
     ELSE done /\ txn' = txn
  /\ UNCHANGED <<group, partitions>>
OwnInit(w) ==    \* J1: the id is kept while its task is there
  /\ w \notin Former /\ ~session[w].live /\ Here(w) # {}
  /\ \E k \in IF session[w].id # NoId THEN {session[w].id} ELSE Here(w) :
       InitOf(w, k, /\ holder' = [holder EXCEPT ![k] = w]
                    /\ session' = [session EXCEPT ![w] = [NoSession EXCEPT !.id = k, !.live = TRUE]]
                    /\ task' = IF At(w, k, "init") THEN [task EXCEPT ![w][k].pc = "fetch"] ELSE task)
ThrowawayInit(w, t) ==    \* J2: the id of each task that recovers
  LET s == session[w] own == s.id = t IN
  /\ w \notin Former /\ At(w, t, "init") /\ s.live /\ (own => s.inside = {})
  /\ IF Rule("throwaway init") \/ own
     THEN InitOf(w, t, /\ holder' = [holder EXCEPT ![t] = IF own THEN w ELSE Nobody]
                       /\ Put(w, t, [task[w][t] EXCEPT !.pc = "fetch"]) /\ UNCHANGED session)
     ELSE Put(w, t, [task[w][t] EXCEPT !.pc = "fetch"]) /\ NoFault /\ UNCHANGED <<session, group, coordinator, partitions>>
(* A former release initialises the id of the one task that it works for; another one waits. *)
FormerInit(w, t) ==
  /\ w \in Former /\ At(w, t, "init") /\ (session[w].inside = {} \/ session[w].id = t)
  /\ InitOf(w, t, /\ holder' = [holder EXCEPT ![t] = w] /\ Put(w, t, [task[w][t] EXCEPT !.pc = "fetch"])
                  /\ session' = [session EXCEPT ![w] = NoSession])
Blocked(t, hw) == \E i \in 1..hw : log[t][i].mark = "open"
R2Fetch(w, t) == /\ At(w, t, "fetch") /\ NoFault /\ UNCHANGED <<session, group, coordinator, partitions>>
                 /\ LET free == (\A k \in Tasks : pending[k][t] = Nothing) \/ ~Rule("stable fetch")
                    IN Put(w, t, IF free THEN [task[w][t] EXCEPT !.pc = "watermark"] ELSE Recovering)
R3Watermark(w, t) == /\ At(w, t, "watermark") /\ Put(w, t, [task[w][t] EXCEPT !.pc = "read", !.hw = Len(log[t])])
                     /\ NoFault /\ UNCHANGED <<session, group, coordinator, partitions>>
R4Read(w, t) == /\ At(w, t, "read") /\ NoFault /\ UNCHANGED <<session, group, coordinator, partitions>>
                /\ LET me == task[w][t]
                   IN Put(w, t, IF Blocked(t, me.hw) THEN Recovering
                                ELSE [me EXCEPT !.pc = "ready", !.last = Newest(SubSeq(log[t], 1, me.hw))])

\* ---- A transaction ----
Due(me) == {[seq |-> me.last.seq + 1, pos |-> p] : p \in (me.last.pos + 1)..N}
Written(w, k, s, records) ==    \* P6: the records of all tasks, and their outcomes
  /\ log' = [t \in Tasks |-> IF t \in s THEN Append(log[t], [record |-> records[t], id |-> k, mark |-> "open"]) ELSE log[t]]
  /\ out' = [t \in Tasks |-> IF t \in s
        THEN out[t] \o [i \in 1..(records[t].pos - task[w][t].last.pos) |->
                          [message |-> task[w][t].last.pos + i, id |-> k, mark |-> "open"]]
        ELSE out[t]]
Opened(k) == txn' = [txn EXCEPT ![k] = "open"]
Offers(w, k, s, records) == pending' = [pending EXCEPT ![k] = [t \in Tasks |-> IF t \in s THEN records[t].pos ELSE @[t]]]
Joins(w, k, s, records, pc) ==
  /\ task' = [task EXCEPT ![w] = [t \in Tasks |-> IF t \in s THEN [@[t] EXCEPT !.pc = "inside", !.new = records[t]] ELSE @[t]]]
  /\ session' = [session EXCEPT ![w] = [id |-> k, live |-> TRUE, pc |-> pc, inside |-> s]]
Ready(w) == {t \in Tasks : At(w, t, "ready") /\ task[w][t].last.pos < N}
Begins(w, k, s) ==    \* J3: offsets first; who was expelled is refused before it has written anything
  /\ s # {} /\ session[w].pc = "idle" /\ Answers(k) /\ holder[k] = w /\ NoFault /\ Opened(k)
  /\ \E records \in [s -> UNION {Due(task[w][t]) : t \in s}] :
       /\ \A t \in s : records[t] \in Due(task[w][t])
       /\ Joins(w, k, s, records, IF Rule("offsets first") THEN "produce" ELSE "offsets")
       /\ IF Rule("offsets first") THEN Offers(w, k, s, records) /\ UNCHANGED <<log, out>>
          ELSE Written(w, k, s, records) /\ UNCHANGED pending
  /\ UNCHANGED <<group, holder, late, offset>>
Begin(w) == /\ w \notin Former /\ session[w].live /\ (Member(w) \/ ~Rule("offsets first"))
            /\ \E s \in SUBSET Ready(w) : Begins(w, session[w].id, s)
FormerBegin(w, t) == w \in Former /\ t \in Ready(w) /\ Member(w) /\ Begins(w, t, {t})
Records(w) == [t \in session[w].inside |-> task[w][t].new]
Placed(w) == \A t \in session[w].inside : Len(log[t]) = task[w][t].hw
Goes(w, pc) == session' = [session EXCEPT ![w].pc = pc]
Produce(w) ==    \* P6, P6a: each record where the log ended, else the transaction is thrown away
  LET s == session[w] IN
  /\ s.pc = "produce" /\ Current(w) /\ Answers(s.id) /\ Opened(s.id) /\ Written(w, s.id, s.inside, Records(w))
  /\ Goes(w, IF Placed(w) \/ ~Rule("place of the record") THEN "commit" ELSE "failed")
  /\ NoFault /\ UNCHANGED <<task, group, holder, late, offset, pending>>
LateOffsets(w) ==    \* with the rule "offsets first" switched off
  LET s == session[w] IN
  /\ s.pc = "offsets" /\ Current(w) /\ Member(w) /\ Answers(s.id) /\ Opened(s.id) /\ Offers(w, s.id, s.inside, Records(w))
  /\ Goes(w, "commit") /\ NoFault /\ UNCHANGED <<task, group, holder, late, log, out, offset>>
Ended(k, how) == txn' = [txn EXCEPT ![k] = IF @ = "open" THEN how ELSE @]
Done(w) == /\ task' = [task EXCEPT ![w] = [t \in Tasks |-> IF t \in session[w].inside
                  THEN [pc |-> IF @[t].pc = "away" THEN "away" ELSE "ready", hw |-> @[t].hw + 1, last |-> @[t].new,
                        new |-> NoRecord]
                  ELSE @[t]]]
           /\ session' = [session EXCEPT ![w].pc = "idle", ![w].inside = {}]
Commit(w) ==
  LET s == session[w] IN
  /\ s.pc = "commit" /\ Current(w) /\ Answers(s.id) /\ UNCHANGED <<group, holder, partitions>>
  /\ \/ NoFault /\ Done(w) /\ Ended(s.id, "commit") /\ late' = late
     \/ Fault /\ Goes(w, "doubt") /\ Ended(s.id, "commit") /\ UNCHANGED <<task, late>>      \* the answer is lost
     \/ Fault /\ Goes(w, "doubt") /\ late' = late \cup {<<s.id, "commit">>} /\ UNCHANGED <<task, txn>>
Doubt(w) ==
  LET s == session[w] IN
  /\ s.pc = "doubt" /\ NoFault /\ UNCHANGED <<group, partitions>>
  /\ IF Rule("discard when in doubt") THEN Discard(w)
     ELSE Current(w) /\ Answers(s.id) /\ Done(w) /\ Ended(s.id, "commit") /\ UNCHANGED <<holder, late>>
Refused(w) ==
  LET s == session[w] IN
  /\ \/ s.pc \in {"failed", "produce", "offsets", "commit"} /\ (s.pc = "failed" \/ ~Current(w))
     \/ s.pc = "offsets" /\ ~Member(w)
     \/ w \notin Former /\ s.live /\ s.pc = "idle" /\ Ready(w) # {} /\ (holder[s.id] # w \/ ~Member(w))
  /\ Discard(w) /\ NoFault /\ UNCHANGED <<group, partitions>>
FormerRefused(w, t) ==
  /\ w \in Former /\ session[w].pc = "idle" /\ t \in Ready(w) /\ (holder[t] # w \/ ~Member(w)) /\ Put(w, t, Recovering)
  /\ NoFault /\ UNCHANGED <<session, group, coordinator, partitions>>
Error(w) == session[w].pc \in {"produce", "offsets", "commit"} /\ Fault /\ Discard(w) /\ UNCHANGED <<group, partitions>>

\* ---- The brokers ----
Marked(records, k, how) == [i \in DOMAIN records |->
                              IF records[i].id = k /\ records[i].mark = "open" THEN [records[i] EXCEPT !.mark = how] ELSE records[i]]
Markers(k) == /\ ~Answers(k) /\ txn' = [txn EXCEPT ![k] = "none"]
              /\ log' = [t \in Tasks |-> Marked(log[t], k, txn[k])] /\ out' = [t \in Tasks |-> Marked(out[t], k, txn[k])]
              /\ offset' = [t \in Tasks |-> IF txn[k] = "commit" /\ pending[k][t] # Nothing THEN pending[k][t] ELSE offset[t]]
              /\ pending' = [pending EXCEPT ![k] = [t \in Tasks |-> Nothing]]
              /\ NoFault /\ UNCHANGED <<workers, group, holder, late>>
LateEndTxn == /\ \E l \in late : late' = late \ {l} /\ Ended(l[1], l[2])
              /\ NoFault /\ UNCHANGED <<workers, group, holder, partitions>>
TimeOut(k) == /\ txn[k] = "open" /\ txn' = [txn EXCEPT ![k] = "abort"] /\ holder' = [holder EXCEPT ![k] = Nobody]
              /\ late' = {l \in late : l[1] # k} /\ Fault /\ UNCHANGED <<workers, group, partitions>>

TaskStep(w, t) == \/ Assign(w, t) \/ ThrowawayInit(w, t) \/ FormerInit(w, t) \/ R2Fetch(w, t) \/ R3Watermark(w, t)
                  \/ R4Read(w, t) \/ FormerBegin(w, t) \/ FormerRefused(w, t)
SessionStep(w) == \/ Rejoin(w) \/ OwnInit(w) \/ Begin(w) \/ Produce(w) \/ LateOffsets(w) \/ Commit(w) \/ Doubt(w) \/ Refused(w)
Next == \/ LateEndTxn \/ \E k \in Tasks : Markers(k) \/ TimeOut(k)
        \/ \E w \in Workers : SessionStep(w) \/ Expel(w) \/ Die(w) \/ Error(w)
                              \/ \E t \in Tasks : TaskStep(w, t) \/ Revoke(w, t)
Spec == /\ Init /\ [][Next]_vars /\ \A k \in Tasks : WF_vars(Markers(k))
        /\ \A w \in Workers : WF_vars(w \in members /\ SessionStep(w))
        /\ \A w \in Workers : \A t \in Tasks : WF_vars(w \in members /\ TaskStep(w, t))
        /\ WF_vars(members = {} /\ \E w \in Workers : Rejoin(w))

\* ---- What holds ----
Chain(t) == [i \in DOMAIN Committed(log[t]) |-> Committed(log[t])[i].record]
Outcomes(t) == [i \in DOMAIN Committed(out[t]) |-> Committed(out[t])[i].message]
Position(t) == Newest(log[t]).pos

I1 == \A t \in Tasks : \A i, j \in DOMAIN Outcomes(t) : i # j => Outcomes(t)[i] # Outcomes(t)[j]
I2 == \A t \in Tasks : offset[t] = Position(t) /\ \A i \in DOMAIN Outcomes(t) : Outcomes(t)[i] <= Position(t)
I3 == \A t \in Tasks : \A m \in 1..Position(t) : \E i \in DOMAIN Outcomes(t) : Outcomes(t)[i] = m
I4 == \A t \in Tasks : \A i, j \in DOMAIN Outcomes(t) : i < j => Outcomes(t)[i] <= Outcomes(t)[j]
I13 == \A t \in Tasks : \A i \in DOMAIN Chain(t) : Chain(t)[i].seq = i
(* An id belongs to one member at a time. *)
J1 == \A v, w \in members : v # w /\ session[v].id # NoId => session[v].id # session[w].id
(* No transaction stays open under an id that no member has, and that its task's owner has no reason to initialise. *)
J3 == \A k \in Tasks : LET w == owner[k] IN
        ~(/\ txn[k] = "open" /\ w \in members /\ At(w, k, "ready") /\ task[w][k].last.pos = N
          /\ \A v \in members : session[v].id # k)
(* Everything is delivered, and in the end nothing is open. *)
Progress == <>[](\A t \in Tasks : offset[t] = N /\ txn[t] = "none")
=============================================================================
