------------------------------- MODULE worker -------------------------------
(* Workers compete for one task: one input partition with the messages 1..N, one backing partition, one transactional
   id. Workers die, are expelled without noticing, and lose or delay the end of a transaction; the invariants at the
   end hold all the same. Numbers (P5, R1, ...) are those of the protocol, see guarantee.md.

   Taken as given, because brokers promise it: a transaction is ended for all its records and offsets or for none;
   requests of an older epoch of the id are refused for ever. So epochs are not counted: `holder` has the newest one,
   everybody else an older one. As in the old transaction protocol, an EndTxn names its epoch, not its transaction. *)
EXTENDS Naturals, Sequences, TLC

CONSTANTS Workers, Nobody, N,
          Faults,    \* that may happen, of all kinds together
          Without    \* rules that are switched off: {} is the protocol, everything else is there to be refuted

VARIABLES
  worker,            \* by worker: where it is and what it believes; lost when it dies
  members, owner,    \* the group: who is in it, who was given the partition
  holder, txn,       \* the coordinator: see above; "none", "open", or being ended: "commit", "abort"
  late,              \* EndTxn requests of the newest epoch that are still under way
  log, out,          \* backing and output partition: records, each with its mark: "open", "commit", "abort"
  offset, pending,   \* the group's offset, and what it becomes if the transaction commits
  faults             \* that may still happen
vars == <<worker, members, owner, holder, txn, late, log, out, offset, pending, faults>>
group == <<members, owner>>
coordinator == <<holder, txn, late>>
partitions == <<log, out, offset, pending>>

Rule(name) == name \notin Without
Fault == faults > 0 /\ faults' = faults - 1
NoFault == faults' = faults

NoRecord == [kind |-> "none", seq |-> 0, pos |-> 0, end |-> 0]
Stopped == [pc |-> "stopped", hw |-> 0, last |-> NoRecord, new |-> NoRecord, first |-> FALSE]
Recovering == [Stopped EXCEPT !.pc = IF Rule("init before reading") THEN "init" ELSE "watermark"]

Init == /\ worker = [w \in Workers |-> Stopped] /\ members = Workers /\ owner = Nobody
        /\ holder = Nobody /\ txn = "none" /\ late = {}
        /\ log = <<>> /\ out = <<>> /\ offset = 0 /\ pending = 0 /\ faults = Faults

At(w, pc) == worker[w].pc = pc
Become(w, state) == worker' = [worker EXCEPT ![w] = state]
To(w, pc) == Become(w, [worker[w] EXCEPT !.pc = pc])
Current(w) == holder = w \/ ~Rule("fencing")
Answers == txn \in {"none", "open"}    \* while markers are being written, the coordinator lets everybody wait
Ended(how) == IF txn = "open" THEN how ELSE txn
Committed(records) == SelectSeq(records, LAMBDA r : r.mark = "commit")
Newest(records) == LET c == Committed(records) IN IF c = <<>> THEN NoRecord ELSE c[Len(c)].record

(* P8: throw the session away. Its abort comes at once, later, or never. *)
Discard(w, state) ==
  /\ Become(w, IF Rule("positions from the record") THEN state ELSE [state EXCEPT !.last = worker[w].last])
  /\ late' = IF holder = w THEN late \cup {"abort"} ELSE late
  /\ UNCHANGED <<holder, txn>>

\* ---- The group ----
(* A process that died comes back under its static name (A4). One that is expelled goes on until it polls: a zombie. *)
Start(w) == /\ At(w, "stopped") /\ w \in members /\ owner \in {w, Nobody} /\ owner' = w
            /\ Become(w, Recovering) /\ NoFault /\ UNCHANGED <<members, coordinator, partitions>>
Rejoin(w) == /\ w \notin members /\ members' = members \cup {w} /\ NoFault /\ UNCHANGED <<owner, partitions>>
             /\ IF At(w, "stopped") THEN UNCHANGED <<worker, coordinator>> ELSE Discard(w, Stopped)
Expel(w) == /\ w \in members /\ members' = members \ {w} /\ owner' = (IF owner = w THEN Nobody ELSE owner)
            /\ Fault /\ UNCHANGED <<worker, coordinator, partitions>>
Revoke(w) == /\ owner = w /\ ~At(w, "stopped") /\ owner' = Nobody /\ Discard(w, Stopped)    \* A3
             /\ Fault /\ UNCHANGED <<members, partitions>>
Die(w) == ~At(w, "stopped") /\ Become(w, Stopped) /\ Fault /\ UNCHANGED <<group, coordinator, partitions>>

\* ---- Recovery ----
(* R1 ends what is open and fences its writer; it answers once the markers are there. A zombie's init is counted as a
   fault, else two workers could fence each other for ever (R7 bounds that). *)
R1Init(w) == /\ At(w, "init") /\ Answers /\ (IF w \in members THEN NoFault ELSE Fault) /\ late' = {}
             /\ IF txn = "open" THEN txn' = "abort" /\ holder' = Nobody /\ worker' = worker
                ELSE txn' = txn /\ holder' = w /\ To(w, IF Rule("init before reading") THEN "watermark" ELSE "ready")
             /\ UNCHANGED <<group, partitions>>
R3Watermark(w) == /\ At(w, "watermark") /\ Become(w, [worker[w] EXCEPT !.pc = "read", !.hw = Len(log)])
                  /\ NoFault /\ UNCHANGED <<group, coordinator, partitions>>
R4Read(w) ==    \* R5, R6: the newest committed record says where to go on, and nothing else does
  /\ At(w, "read") /\ NoFault /\ UNCHANGED <<group, coordinator, partitions>>
  /\ LET me == worker[w] blocked == \E i \in 1..me.hw : log[i].mark = "open"
     IN Become(w, IF blocked THEN (IF Rule("back to R1") THEN Recovering ELSE me)
                  ELSE [me EXCEPT !.pc = IF Rule("init before reading") THEN "ready" ELSE "init", !.first = TRUE,
                                  !.last = IF @ = NoRecord THEN Newest(SubSeq(log, 1, me.hw)) ELSE @])

\* ---- A batch ----
(* First a start, once for ever; then a snapshot of this start's first batch (S1), of the same range if it is a retry
   (R5); then attempts. User code runs before P6 (P4) and may run again: it does not show here. *)
Ends(r) == IF r.kind = "snapshot" /\ Rule("same range") THEN {r.end} ELSE (r.pos + 1)..N
Due(me) == LET next(kind, pos, end) == [kind |-> kind, seq |-> me.last.seq + 1, pos |-> pos, end |-> end]
           IN IF me.last = NoRecord THEN {next("start", 0, 0)}
              ELSE IF me.first THEN {next("snapshot", me.last.pos, e) : e \in Ends(me.last)}
              ELSE {next("attempt", e, e) : e \in Ends(me.last)}
Member(w) == w \in members \/ ~Rule("generation check")

P6Record(w) ==
  /\ At(w, "ready") /\ Current(w) /\ Answers /\ txn' = "open"
  /\ \E r \in Due(worker[w]) : /\ log' = Append(log, [record |-> r, by |-> w, mark |-> "open"])
                               /\ Become(w, [worker[w] EXCEPT !.pc = "outputs", !.new = r])
  /\ NoFault /\ UNCHANGED <<group, holder, late, out, offset, pending>>
P6Outputs(w) ==
  /\ At(w, "outputs") /\ Current(w) /\ Answers /\ txn' = "open" /\ To(w, "offsets")
  /\ LET me == worker[w] mark == IF Rule("outputs in the transaction") THEN "open" ELSE "commit"
     IN out' = out \o [i \in 1..(me.new.pos - me.last.pos) |-> [message |-> me.last.pos + i, mark |-> mark]]
  /\ NoFault /\ UNCHANGED <<group, holder, late, log, offset, pending>>
P5Offsets(w) ==    \* whoever was expelled is refused, with all that it has written; then P6a looks
  /\ At(w, "offsets") /\ Current(w) /\ Member(w) /\ Answers /\ txn' = "open"
  /\ LET me == worker[w] placed == log[me.hw + 1] = [record |-> me.new, by |-> w, mark |-> "open"]
     IN pending' = me.new.pos /\ To(w, IF placed \/ ~Rule("place of the record") THEN "commit" ELSE "failed")
  /\ NoFault /\ UNCHANGED <<group, holder, late, log, out, offset>>

Done(me) == [pc |-> "ready", hw |-> me.hw + 1, last |-> me.new, new |-> NoRecord,
             first |-> me.first /\ me.new.kind # "snapshot"]
P7Commit(w) ==
  /\ At(w, "commit") /\ Current(w) /\ Answers /\ UNCHANGED <<group, holder, partitions>>
  /\ \/ NoFault /\ Become(w, Done(worker[w])) /\ txn' = Ended("commit") /\ late' = late
     \/ Fault /\ To(w, "doubt") /\ txn' = Ended("commit") /\ late' = late           \* the answer is lost
     \/ Fault /\ To(w, "doubt") /\ txn' = txn /\ late' = late \cup {"commit"}       \* the request is late, or lost
P8Doubt(w) ==    \* a suspect commit: only the log knows whether it happened. Asking again in the same epoch is the trap
  /\ At(w, "doubt") /\ NoFault /\ UNCHANGED <<group, partitions>>
  /\ IF Rule("discard when in doubt") THEN Discard(w, Recovering)
     ELSE Current(w) /\ Answers /\ Become(w, Done(worker[w])) /\ txn' = Ended("commit") /\ UNCHANGED <<holder, late>>
P8Refused(w) ==
  /\ \/ At(w, "failed")
     \/ At(w, "offsets") /\ ~Member(w)
     \/ worker[w].pc \in {"ready", "outputs", "offsets", "commit"} /\ ~Current(w)
  /\ Discard(w, Recovering) /\ NoFault /\ UNCHANGED <<group, partitions>>
P8Error(w) ==    \* any other error; a missing delivery report is one
  /\ worker[w].pc \in {"outputs", "offsets", "commit"} /\ Fault /\ UNCHANGED <<group, partitions>>
  /\ IF At(w, "outputs") /\ ~Rule("count reports") THEN To(w, "offsets") /\ UNCHANGED coordinator
     ELSE Discard(w, Recovering)

\* ---- The brokers ----
Markers == LET marked(s) == [i \in DOMAIN s |-> IF s[i].mark = "open" THEN [s[i] EXCEPT !.mark = txn] ELSE s[i]]
           IN /\ ~Answers /\ log' = marked(log) /\ out' = marked(out) /\ txn' = "none"
              /\ offset' = (IF txn = "commit" THEN pending ELSE offset) /\ pending' = offset'
              /\ NoFault /\ UNCHANGED <<worker, group, holder, late>>
LateEndTxn == /\ \E how \in late : late' = late \ {how} /\ txn' = Ended(how)
              /\ NoFault /\ UNCHANGED <<worker, group, holder, partitions>>
TimeOut == /\ txn = "open" /\ txn' = "abort" /\ holder' = Nobody /\ late' = {}
           /\ Fault /\ UNCHANGED <<worker, group, partitions>>

Step(w) == \/ Start(w) \/ Rejoin(w) \/ R1Init(w) \/ R3Watermark(w) \/ R4Read(w) \/ P5Offsets(w) \/ P6Record(w)
           \/ P6Outputs(w) \/ P7Commit(w) \/ P8Doubt(w) \/ P8Refused(w)
Next == Markers \/ LateEndTxn \/ TimeOut \/ \E w \in Workers : Step(w) \/ Expel(w) \/ Revoke(w) \/ Die(w) \/ P8Error(w)
(* Sure to go on are markers and members only: a zombie need not take a step (but one must, where nobody else is left),
   what is late need not come, and no time-out need pass. *)
Spec == /\ Init /\ [][Next]_vars /\ WF_vars(Markers) /\ \A w \in Workers : WF_vars(w \in members /\ Step(w))
        /\ WF_vars(members = {} /\ \E w \in Workers : Rejoin(w))

\* ---- What holds ----
Records == [i \in DOMAIN Committed(log) |-> Committed(log)[i].record]
Outcomes == [i \in DOMAIN Committed(out) |-> Committed(out)[i].message]
Position == Newest(log).pos

I1 == \A i, j \in DOMAIN Outcomes : i # j => Outcomes[i] # Outcomes[j]             \* no delivery has two outcomes
I2 == offset = Position /\ \A i \in DOMAIN Outcomes : Outcomes[i] <= Position      \* record, offsets, outcome together
I3 == \A m \in 1..Position : \E i \in DOMAIN Outcomes : Outcomes[i] = m            \* none below the position is missing
I4 == \A i, j \in DOMAIN Outcomes : i < j => Outcomes[i] <= Outcomes[j]            \* in order
I13 == \A i \in DOMAIN Records : Records[i].seq = i                                \* no gap, no repeat
I14 == [][Len(log') > Len(log) => log'[Len(log')].by = holder]_log                 \* only the id's holder writes
Announced == \A i \in 2..Len(Records) :                                            \* S1, R5: no other range
               Records[i - 1].kind = "snapshot" => Records[i].end = Records[i - 1].end
Progress == <>(offset = N)                                                         \* I5, I10
Symmetry == Permutations(Workers)    \* workers are alike; for invariants only, TLC's Progress would be wrong with it
=============================================================================
